"""The look that pages share. On a narrow screen what is too wide scrolls in a box of its own (`scroll`)."""

STYLE = """\
:root { color-scheme: light dark; --ink: #1b1f24; --soft: #57606a; --page: #ffffff; --panel: #f4f6f8;
  --line: #d5dae0; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e9ed; --soft: #a3adb8; --page: #14171b; --panel: #1f242a; --line: #3a424b; }
}
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1180px; padding: 24px 20px 48px; color: var(--ink); background: var(--page);
  font: 16px/1.5 system-ui, "Segoe UI", Roboto, "Liberation Sans", sans-serif; }
h1 { font-size: 1.7rem; line-height: 1.25; margin: 0 0 20px; overflow-wrap: anywhere; }
h2 { font-size: 1.2rem; margin: 36px 0 12px; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(145px, 1fr)); gap: 12px; }
.tile { background: var(--panel); border-radius: 8px; padding: 12px 14px; min-width: 0; }
.tile .name, .tile .detail { color: var(--soft); font-size: .85rem; line-height: 1.35;
  overflow-wrap: anywhere; }
.tile .value { font-size: 1.45rem; font-weight: 600; overflow-wrap: anywhere;
  font-variant-numeric: tabular-nums; }
.note { max-width: 75ch; }
table { border-collapse: collapse; font-size: .92rem; }
th, td { padding: 7px 12px; border-bottom: 1px solid var(--line); text-align: left; vertical-align: top; }
thead th { color: var(--soft); font-weight: 600; }
tbody th { font-weight: 500; white-space: nowrap; }
td { font-variant-numeric: tabular-nums; overflow-wrap: anywhere; min-width: 5.5em; }
td.number, thead th.number { text-align: right; white-space: nowrap; }
.scroll { overflow-x: auto; }
details { margin-top: 12px; }
summary { cursor: pointer; color: var(--soft); }
figure { margin: 32px 0 0; }
figcaption { font-weight: 600; margin-bottom: 8px; }
@media (max-width: 720px) {
  body { padding: 16px 12px 32px; }
  .tiles { grid-template-columns: repeat(2, 1fr); }
  tbody th { white-space: normal; overflow-wrap: anywhere; min-width: 9em; }
}
"""
