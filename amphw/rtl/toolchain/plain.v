// For Yosys: operators whose operands are narrower or wider than the operator become ones whose operands are as
// wide as it, with the extension in words. It means the same, for Verilog extends and cuts by itself; but then tools
// warn of it, rightly, since by hand it would be a mistake. Each operator is left alone that has the widths wanted.
module extended (i, o);
  parameter SIGNED = 0; parameter FROM = 1; parameter TO = 1;
  input [FROM > 0 ? FROM-1 : 0:0] i; output [TO-1:0] o;
  generate
    if (FROM == 0) assign o = {TO{1'b0}};
    else if (TO <= FROM) assign o = i[TO-1:0];
    else if (SIGNED) assign o = {{(TO-FROM){i[FROM-1]}}, i};
    else assign o = {{(TO-FROM){1'b0}}, i};
  endgenerate
endmodule

(* techmap_celltype = "$add $sub $mul $and $or $xor $xnor" *)
module arithmetic (A, B, Y);
  parameter _TECHMAP_CELLTYPE_ = "";
  parameter A_SIGNED = 0; parameter B_SIGNED = 0;
  parameter A_WIDTH = 1; parameter B_WIDTH = 1; parameter Y_WIDTH = 1;
  input [A_WIDTH > 0 ? A_WIDTH-1 : 0:0] A; input [B_WIDTH > 0 ? B_WIDTH-1 : 0:0] B; output [Y_WIDTH-1:0] Y;
  wire _TECHMAP_FAIL_ = A_WIDTH == Y_WIDTH && B_WIDTH == Y_WIDTH;
  wire [Y_WIDTH-1:0] a, b;
  localparam S = A_SIGNED && B_SIGNED;
  extended #(.SIGNED(S), .FROM(A_WIDTH), .TO(Y_WIDTH)) ea (.i(A), .o(a));
  extended #(.SIGNED(S), .FROM(B_WIDTH), .TO(Y_WIDTH)) eb (.i(B), .o(b));
  generate
    if (_TECHMAP_CELLTYPE_ == "$add") assign Y = a + b;
    if (_TECHMAP_CELLTYPE_ == "$sub") assign Y = a - b;
    if (_TECHMAP_CELLTYPE_ == "$mul") assign Y = a * b;
    if (_TECHMAP_CELLTYPE_ == "$and") assign Y = a & b;
    if (_TECHMAP_CELLTYPE_ == "$or") assign Y = a | b;
    if (_TECHMAP_CELLTYPE_ == "$xor") assign Y = a ^ b;
    if (_TECHMAP_CELLTYPE_ == "$xnor") assign Y = a ~^ b;
  endgenerate
endmodule

(* techmap_celltype = "$eq $ne $lt $le $gt $ge" *)
module comparison (A, B, Y);
  parameter _TECHMAP_CELLTYPE_ = "";
  parameter A_SIGNED = 0; parameter B_SIGNED = 0;
  parameter A_WIDTH = 1; parameter B_WIDTH = 1; parameter Y_WIDTH = 1;
  input [A_WIDTH > 0 ? A_WIDTH-1 : 0:0] A; input [B_WIDTH > 0 ? B_WIDTH-1 : 0:0] B; output [Y_WIDTH-1:0] Y;
  wire _TECHMAP_FAIL_ = A_WIDTH == B_WIDTH && Y_WIDTH == 1;
  localparam W = A_WIDTH > B_WIDTH ? A_WIDTH : B_WIDTH;
  localparam S = A_SIGNED && B_SIGNED;
  wire [W-1:0] a, b;
  extended #(.SIGNED(S), .FROM(A_WIDTH), .TO(W)) ea (.i(A), .o(a));
  extended #(.SIGNED(S), .FROM(B_WIDTH), .TO(W)) eb (.i(B), .o(b));
  wire y;
  extended #(.SIGNED(0), .FROM(1), .TO(Y_WIDTH)) ey (.i(y), .o(Y));
  generate
    if (_TECHMAP_CELLTYPE_ == "$eq") assign y = a == b;
    if (_TECHMAP_CELLTYPE_ == "$ne") assign y = a != b;
    if (_TECHMAP_CELLTYPE_ == "$lt") if (S) assign y = $signed(a) < $signed(b); else assign y = a < b;
    if (_TECHMAP_CELLTYPE_ == "$le") if (S) assign y = $signed(a) <= $signed(b); else assign y = a <= b;
    if (_TECHMAP_CELLTYPE_ == "$gt") if (S) assign y = $signed(a) > $signed(b); else assign y = a > b;
    if (_TECHMAP_CELLTYPE_ == "$ge") if (S) assign y = $signed(a) >= $signed(b); else assign y = a >= b;
  endgenerate
endmodule

(* techmap_celltype = "$logic_not" *)
module negation (A, Y);
  parameter A_SIGNED = 0; parameter A_WIDTH = 1; parameter Y_WIDTH = 1;
  input [A_WIDTH > 0 ? A_WIDTH-1 : 0:0] A; output [Y_WIDTH-1:0] Y;
  extended #(.SIGNED(0), .FROM(1), .TO(Y_WIDTH)) ey (.i(A == {A_WIDTH{1'b0}}), .o(Y));
endmodule

(* techmap_celltype = "$not $neg" *)
module unary (A, Y);
  parameter _TECHMAP_CELLTYPE_ = "";
  parameter A_SIGNED = 0; parameter A_WIDTH = 1; parameter Y_WIDTH = 1;
  input [A_WIDTH > 0 ? A_WIDTH-1 : 0:0] A; output [Y_WIDTH-1:0] Y;
  wire _TECHMAP_FAIL_ = A_WIDTH == Y_WIDTH;
  wire [Y_WIDTH-1:0] a;
  extended #(.SIGNED(A_SIGNED), .FROM(A_WIDTH), .TO(Y_WIDTH)) ea (.i(A), .o(a));
  generate
    if (_TECHMAP_CELLTYPE_ == "$not") assign Y = ~a;
    if (_TECHMAP_CELLTYPE_ == "$neg") assign Y = -a;
  endgenerate
endmodule

(* techmap_celltype = "$shl $shr $sshl $sshr $shift" *)
module shifts (A, B, Y);
  parameter _TECHMAP_CELLTYPE_ = "";
  parameter A_SIGNED = 0; parameter B_SIGNED = 0;
  parameter A_WIDTH = 1; parameter B_WIDTH = 1; parameter Y_WIDTH = 1;
  input [A_WIDTH > 0 ? A_WIDTH-1 : 0:0] A; input [B_WIDTH > 0 ? B_WIDTH-1 : 0:0] B; output [Y_WIDTH-1:0] Y;
  wire _TECHMAP_FAIL_ = A_WIDTH == Y_WIDTH || (_TECHMAP_CELLTYPE_ == "$shift" && B_SIGNED);
  localparam W = A_WIDTH > Y_WIDTH ? A_WIDTH : Y_WIDTH;
  wire [W-1:0] a, y;
  extended #(.SIGNED(A_SIGNED), .FROM(A_WIDTH), .TO(W)) ea (.i(A), .o(a));
  assign Y = y[Y_WIDTH-1:0];
  generate
    if (_TECHMAP_CELLTYPE_ == "$shl") assign y = a << B;
    if (_TECHMAP_CELLTYPE_ == "$shr" || _TECHMAP_CELLTYPE_ == "$shift") assign y = a >> B;
    if (_TECHMAP_CELLTYPE_ == "$sshl") assign y = a <<< B;
    if (_TECHMAP_CELLTYPE_ == "$sshr") if (A_SIGNED) assign y = $signed(a) >>> B; else assign y = a >> B;
  endgenerate
endmodule
