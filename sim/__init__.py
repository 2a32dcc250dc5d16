"""Test benches of the generated hardware, which run inside Verilator through cocotb.

`runner.run_bench` starts them; the files `benches/*_bench.py` are loaded by the simulator, not by pytest.
"""
