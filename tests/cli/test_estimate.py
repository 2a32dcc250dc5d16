"""`amphw estimate`: on a network of devices, and as papers calculate."""

from __future__ import annotations

import json

import pytest

from amphw.cpu_runtime import planes

SMALL = ["list-reduction", "--set", "hidden=8", "--set", "batch=5", "--instances", "4"]
GGNN = ["ggnn", "--set", "sample=true", "--instances", "4"]
KEYS = {"version", "model", "devices", "throughput", "bottleneck", "per_node", "per_edge", "origin"}


def estimated(amphw, *arguments: str) -> dict:
    done = amphw("estimate", *arguments, "--json")
    assert done.exit_code == 0, done.stderr
    return json.loads(done.stdout)


def test_the_tables_say_what_limits_and_how_numbers_are_known(amphw) -> None:
    network = ["--flops", "1TFLOPS", "--link", "10Gb/s", "--latency", "1us", "--memory", "1MB"]
    done = amphw("estimate", *SMALL, *network)
    assert done.exit_code == 0, done.stderr
    text = " ".join(done.stdout.split())
    for part in (
        "list-reduction: 2 nodes with parameters on 2 devices",
        "flops: stated: --flops 1TFLOPS",
        "link: stated: --link 10Gb/s",
        "devices: assumed: one for each replica of a node with parameters: 2",
        "messages: counted: counted in the plans of the instances",
        "instances: counted: the first training instances, 4 of them",
        "Throughput: ",
        "sequences/s",
        "Bottleneck: ",
    ):
        assert part in text
    assert all(len(line.rstrip()) <= 120 for line in done.stdout.splitlines())


def test_the_answer_comes_before_the_tables_and_long_ones_are_asked_for(amphw) -> None:
    long = ("Of an instance, by node", "Memory of a node", "Of an instance, by edge")
    done = amphw("estimate", *GGNN, "--flops", "1TFLOPS", "--link", "10Gb/s")
    assert done.exit_code == 0, done.stderr
    answer = done.stdout.split("\nDevices:\n")[0]
    assert len(answer.splitlines()) <= 12
    for part in ("Throughput: ", "Bottleneck: the link ", "What to change: Links of more bandwidth (--link)"):
        assert f"\n{part}" in answer
    assert "8 nodes with parameters on 8 devices (1 TFLOPS)" in answer
    assert not any(title in done.stdout for title in long) and "--full" in done.stdout
    full = amphw("estimate", *GGNN, "--flops", "1TFLOPS", "--link", "10Gb/s", "--full").stdout
    assert full.startswith(answer) and all(f"\n{title}" in full for title in long)


def test_of_many_devices_and_links_the_busiest_are_shown(amphw) -> None:
    many = ["--flops", "1TFLOPS", "--replicas", "12"]
    few, full = (amphw("estimate", *SMALL, *many, *more).stdout for more in ([], ["--full"]))
    assert "and 8 devices that are less busy" in few and "links that carry less" in few
    assert "less busy" not in full and "carry less" not in full
    rows = [text.split("\nDevices:\n")[1].split("\n\n")[0].splitlines()[1:] for text in (few, full)]
    assert len(rows[0]) == 16 + 1 and len(rows[1]) == 24


def test_nodes_that_never_fired_are_named_and_their_links_left_out(amphw) -> None:
    network = [*GGNN, "--flops", "1TFLOPS", "--link", "10Gb/s"]
    found = estimated(amphw, *network)
    idle = [n["name"] for n in found["per_node"] if n["memory"]["value"] and not n["firings"]["most"]]
    assert "edge_aromatic" in idle
    unused = [link for link in found["links"] if not link["bytes"]]  # the JSON keeps all
    text = " ".join(amphw("estimate", *network).stdout.split())
    assert f"Never fired on the 4 instances that are counted: {', '.join(idle)}." in text
    assert f"Left out: {len(unused)} links that nothing crosses" in text
    links = text.split("Links that are used:")[1].split("Left out")[0]
    assert " 0% " not in links
    assert unused and not [link["name"] for link in unused if f"{link['name']} " in links]


def test_without_a_rate_devices_are_like_this_machines_cpu(amphw) -> None:
    done = amphw("estimate", *SMALL)
    assert done.exit_code == 0, done.stderr
    default = "cpu, the default without --flops, --lanes, --like and --network"
    assert default in " ".join(done.stderr.split())
    text = " ".join(done.stdout.split())
    assert "on 2 devices (like cpu)" in text and f"times: measured: --like {default}" in text


def test_the_json_keeps_its_contract(amphw) -> None:
    found = estimated(amphw, *SMALL, "--flops", "1TFLOPS")
    assert KEYS <= set(found) and found["version"] == 1
    assert found["bottleneck"] == found["loads"][0]
    assert found["throughput"] == pytest.approx(1 / found["bottleneck"]["seconds"])
    cell = next(n for n in found["per_node"] if n["name"] == "cell")
    numbers = 14 * 8 + 16 * 8 + 8
    assert cell["memory"]["value"] == cell["memory"]["gradient"] == 4 * numbers
    assert set(cell["firings"]) == {"mean", "least", "median", "p95", "most"}
    for edge in found["per_edge"]:
        assert edge["bits_per_s"] == pytest.approx(8 * edge["activation_bytes"]["mean"] * found["throughput"])
        assert edge["weight_bytes"] == next(
            n["memory"]["value"] for n in found["per_node"] if n["name"] == edge["target"]
        )
    kinds = {"measured", "synthesised", "assumed", "stated", "counted"}
    assert {each["origin"] for each in found["origin"].values()} <= kinds
    assert all(each["how"] for each in found["origin"].values())
    assert (found["instances"], found["counted_per_instance"]) == (4, 5)


def test_devices_replicas_and_keys_are_as_asked_for(amphw) -> None:
    found = estimated(amphw, *SMALL, "--flops", "1TFLOPS", "--devices", "3", "--replicas", "2", "--keys", "7")
    assert len(found["devices"]) == 3 and found["keys"] == 7
    assert next(n["devices"] for n in found["per_node"] if n["name"] == "cell") == [0, 1]
    assert found["origin"]["replicas"] == {"origin": "stated", "how": "--replicas 2"}


def test_generated_data_are_told_from_real_ones(amphw) -> None:
    found = estimated(amphw, *GGNN, "--flops", "1TFLOPS")
    assert found["origin"]["instances"] == {"origin": "synthesised", "how": "generated instances, 4 of them"}


def test_a_model_that_decides_is_counted_on_the_reference(amphw) -> None:
    found = estimated(amphw, "babi15", "--set", "sample=true", "--instances", "2", "--flops", "1GFLOPS")
    assert "counted" in found["origin"]["messages"]["how"]


def test_the_papers_case(amphw) -> None:
    """AMPNet, arXiv 1705.09786, appendix C: 6.5e3 samples/s, 1.2e9 bit/s, 1.2 MB, seven devices."""
    found = estimated(amphw, *GGNN, "--case", "paper")
    assert KEYS <= set(found)
    assert found["throughput"] == pytest.approx(6510.4, abs=0.1)
    assert [edge["bits_per_s"] for edge in found["per_edge"]] == [pytest.approx(1.25e9)]
    assert len(found["devices"]) == 7
    assert max(device["memory"] for device in found["devices"]) == 1_280_000
    assert found["case"]["printed"] == {"samples_per_s": 6.5e3, "bits_per_s": 1.2e9, "memory_bytes": 1.2e6}
    data, model = found["beside"]["formula on the data"], found["beside"]["model on instances"]
    assert data["origin"]["graphs"]["origin"] == "synthesised" and data["case"]["inputs"]["hidden"] == 200
    assert data["case"]["figures"]["bits_per_s_of_all_steps"] == 4 * data["case"]["figures"]["bits_per_s"]
    assert model["instances"] == 4 and model["case"] is None and len(model["devices"]) == 8
    update = next(n for n in model["per_node"] if n["name"] == "update")
    assert update["memory"]["value"] == 4 * (3 * 2 * 200 * 200 + 6 * 200)  # the case's width, and biases


@pytest.mark.parametrize("more", [["--compare"], ["--html", "report.html"]])
def test_the_papers_case_is_not_compared(amphw, more) -> None:
    done = amphw("estimate", *GGNN, "--case", "paper", *more)
    assert done.exit_code == 2 and f"{more[0]} is not for --case" in " ".join(done.stderr.split())


def test_the_papers_case_as_a_table(amphw) -> None:
    done = amphw("estimate", *GGNN, "--case", "paper", "--flops", "2TFLOPS")
    assert done.exit_code == 0, done.stderr
    text = " ".join(done.stdout.split())
    assert "samples_per_s 6,500 13,021" in text
    assert "flops: stated: --flops 2TFLOPS" in text and "Beside it, model on instances:" in text


@pytest.mark.skipif(not planes.built(), reason="the C++ data plane is not built")
def test_a_network_is_played_through(amphw) -> None:
    events = ["--flops", "1GFLOPS", "--link", "1Gb/s", "--latency", "1us", "--method", "events"]
    found = estimated(amphw, *SMALL, *events)
    assert 0.0 < found["played"]["throughput"] <= 1.05 * found["throughput"]
    assert len(found["played"]["device_busy"]) == len(found["devices"])
    done = amphw("estimate", *SMALL, *events)
    assert done.exit_code == 0, done.stderr
    text = " ".join(done.stdout.split())
    assert "Played through in time, 400 instances" in text and "Played through: " in text
    assert "Updates between a firing and its gradient, on average: cell " in text
    assert "a message waits" in text and "queued, most" in text


@pytest.mark.skipif(not planes.built(), reason="the C++ data plane is not built")
def test_comparisons_are_made_where_they_are_asked_for(amphw) -> None:
    network = ["--flops", "1GFLOPS", "--link", "1Gb/s", "--latency", "1us"]
    plain, found = estimated(amphw, *SMALL, *network), estimated(amphw, *SMALL, *network, "--compare")
    assert plain["sensitivity"] == plain["placements"] == [] and found["played"] is None
    assert found["throughput"] == plain["throughput"] == found["sensitivity"][0]["throughput"]
    changes = {each["what"]: each for each in found["sensitivity"]}
    for what in (
        "devices twice as fast",
        "links of twice the bandwidth",
        "twice as many instances in flight",
    ):
        assert changes[what]["throughput"] >= plain["throughput"] and changes[what]["played"] > 0
    names = [each["name"] for each in found["placements"]]
    assert names == ["in turns, as estimated", "all on one device", "a device for each node", "local search"]
    done = amphw("estimate", *SMALL, *network, "--compare")
    text = " ".join(done.stdout.split())
    assert "What doubling buys" in text and "links of twice the bandwidth" in text and "local search" in text
    assert all(len(line.rstrip()) <= 120 for line in done.stdout.splitlines())


def test_how_right_estimates_have_been_is_said_with_each(amphw) -> None:
    rows = estimated(amphw, *SMALL, "--flops", "1TFLOPS")["accuracy"]
    own = [row for row in rows if row["model"] == "list-reduction"]
    assert len(own) >= 4
    for row in own:
        assert row["error"] == pytest.approx(row["simulated"] / row["measured"] - 1)
    done = amphw("estimate", *SMALL, "--flops", "1TFLOPS")
    lines = [line for line in done.stdout.splitlines() if line.startswith("Errors so far: ")]
    assert len(lines) == 1 and "beside the CPU engine (4 measured)" in lines[0]


@pytest.mark.skipif(not planes.built(), reason="the C++ data plane is not built")
def test_a_report_is_written(amphw, tmp_path) -> None:
    network = ["--flops", "1GFLOPS", "--link", "1Gb/s"]
    done = amphw("estimate", *SMALL, *network, "--html", "new/report.html")
    assert done.exit_code == 0, done.stderr
    assert "report: new/report.html" in done.stderr and "Played through: " in done.stdout
    page = (tmp_path / "new" / "report.html").read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>") and "list-reduction on 2 devices" in page
    found = estimated(amphw, *SMALL, *network, "--html", "report.html")
    timeline = found["played"]["timeline"]
    assert timeline["steady"] and {s["direction"] for s in timeline["slices"]} == {"forward", "backward"}
    assert found["sensitivity"] and found["placements"]


@pytest.mark.skipif(not planes.built(), reason="the C++ data plane is not built")
def test_the_sleep_method_measures_and_extrapolates(amphw) -> None:
    sleep = ["--flops", "1TFLOPS", "--method", "sleep", "--seconds", "0.05"]
    found = estimated(amphw, *SMALL, *sleep, "--epochs", "3", "--set", "train_instances=100")
    measured = found["measured"]
    assert (measured["epochs"], measured["train_size"], measured["reference"]) == (3, 100, 268_000)
    assert measured["time_to_target"] == pytest.approx(
        3 * (100 / measured["train_per_s"] + measured["valid_size"] / measured["valid_per_s"])
    )
    assert found["origin"]["train_per_s"]["origin"] == "measured"
    assert found["origin"]["reference"]["origin"] == "stated"
    assert KEYS <= set(found) and len(found["devices"]) == 2
    done = amphw("estimate", *SMALL, *sleep)
    assert done.exit_code == 0, done.stderr
    text = " ".join(done.stdout.split())
    assert "the paper: 268,000 instances/s in training, on 16 cores" in text
    assert "epochs: assumed: one epoch" in text


@pytest.mark.parametrize(
    "more, complaint",
    [
        (["--flops", "0TFLOPS"], "--flops: '0TFLOPS' is no number of operations a second"),
        (["--flops", "-1TFLOPS"], "--flops: '-1TFLOPS' is no number of operations a second"),
        (["--flops", "infFLOPS"], "--flops: 'infFLOPS' is no number"),
        (["--flops", "nanFLOPS"], "--flops: 'nanFLOPS' is no number"),
        (["--flops", "1e999FLOPS"], "--flops: '1e999FLOPS' is no number"),
        (["--flops", "1000"], "--flops: '1000' is no number of operations a second: write it as 1TFLOPS"),
        (["--flops", "1TFLOPS", "--link", "10"], "--link: '10' is no number of bits a second"),
        (["--flops", "1TFLOPS", "--link", "10GB"], "--link: '10GB' is no number of bits a second"),
        (["--flops", "1TFLOPS", "--memory", "8"], "--memory: '8' is no number of bytes"),
        (["--flops", "1TFLOPS", "--latency", "1"], "--latency: '1' is no number of seconds"),
        (["--flops", "1TFLOPS", "--utilisation", "0"], "rate in use is 0.0"),
        (["--flops", "1TFLOPS", "--utilisation", "nan"], "rate in use is nan"),
        (["--flops", "1TFLOPS", "--memory", "1kB"], "device 0 is too small by"),
        (["--flops", "1TFLOPS", "--case", "paper"], "no case 'paper' of the model list-reduction"),
    ],
)
def test_what_cannot_be_is_said(amphw, more, complaint) -> None:
    done = amphw("estimate", *SMALL, *more)
    assert done.exit_code == 1 and complaint in done.stderr


@pytest.mark.parametrize(
    "more",
    [
        ["--method", "sleep"],
        ["--flops", "1TFLOPS", "--devices", "0"],
        ["--flops", "1TFLOPS", "--keys", "0"],
        ["--flops", "1TFLOPS", "--method", "magic"],
        ["--flops", "1TFLOPS", "--method", "events", "--seconds", "2"],
        ["--flops", "1TFLOPS", "--epochs", "3"],
        ["--flops", "1TFLOPS", "--method", "sleep", "--link", "10Gb/s"],
        ["--flops", "1TFLOPS", "--method", "sleep", "--replicas", "2"],
        ["--flops", "1TFLOPS", "--method", "sleep", "--html", "report.html"],
        ["--flops", "1TFLOPS", "--method", "sleep", "--compare"],
    ],
)
def test_a_command_line_that_cannot_be_read(amphw, more) -> None:
    assert amphw("estimate", *SMALL, *more).exit_code == 2
    assert amphw("estimate", *SMALL[:-1], "0", "--flops", "1TFLOPS").exit_code == 2  # no instances


def test_a_model_that_there_is_none_of(amphw) -> None:
    done = amphw("estimate", "nothing", "--flops", "1TFLOPS")
    assert done.exit_code == 1 and "there is no model 'nothing'" in done.stderr


def test_a_file_without_a_model(amphw, tmp_path) -> None:
    (tmp_path / "empty.py").write_text("x = 1\n")
    done = amphw("estimate", "empty.py", "--flops", "1TFLOPS")
    assert done.exit_code == 1 and "empty.py" in done.stderr


CIRCUIT = [
    "list-reduction",
    "--set",
    "hidden=8",
    "--set",
    "batch=1",
    "--set",
    "optimizer=sgd",
    "--instances",
    "4",
]


def test_circuits_are_counted_in_cycles(amphw) -> None:
    few, many = (
        estimated(amphw, *CIRCUIT, "--lanes", lanes, "--clock", "50MHz", "--devices", "1")
        for lanes in ("2", "8")
    )
    assert few["throughput"] < many["throughput"]
    (device,) = many["devices"]
    assert device["what"] == "8 lanes at 50 MHz" and device["flops"] == 2 * 8 * 50e6
    assert device["resources"]["dsps"] > 8
    found = {name: each["origin"] for name, each in many["origin"].items()}
    assert found["lanes"] == found["clock"] == "stated" and found["cycles"] == "counted"
    assert found["resources"] == "synthesised" and "flops" not in found
    faster = estimated(amphw, *CIRCUIT, "--lanes", "8", "--clock", "100MHz", "--devices", "1")
    assert faster["throughput"] == pytest.approx(2 * many["throughput"])
    unsaid = estimated(amphw, *CIRCUIT, "--lanes", "8", "--devices", "1")
    assert unsaid["devices"][0]["what"] == "8 lanes at 50 MHz"
    assert unsaid["throughput"] == pytest.approx(many["throughput"])
    assert unsaid["origin"]["clock"]["origin"] == "assumed"
    assert unsaid["origin"]["clock"]["how"].startswith("50 MHz, of large circuits on the ulx3s-85f")


def test_a_network_from_a_file(amphw, tmp_path) -> None:
    file = tmp_path / "net.toml"
    file.write_text(
        '[[device]]\nflops = "1GFLOPS"\nnodes = ["cell"]\n'
        '[[device]]\nlanes = 4\nclock = "50MHz"\nnodes = ["head"]\n'
    )
    found = estimated(amphw, *CIRCUIT, "--network", str(file), "--link", "1Gb/s")
    assert [device["what"] for device in found["devices"]] == ["1 GFLOPS", "4 lanes at 50 MHz"]
    assert "cell" in found["devices"][0]["nodes"] and "head" in found["devices"][1]["nodes"]
    assert found["origin"]["network"] == {"origin": "stated", "how": f"--network {file}"}
    file.write_text(file.read_text() + '[[device]]\nflops = "1GFLOPS"\n[[link]]\nbetween = [0, 2]\n')
    done = amphw("estimate", *CIRCUIT, "--network", str(file))
    assert done.exit_code != 0
    assert "there is no link from" in " ".join(done.stderr.split())


def test_devices_like_one_that_is_here(amphw) -> None:
    found = estimated(amphw, *SMALL, "--like", "cpu")
    assert found["throughput"] > 0 and {d["what"] for d in found["devices"]} == {"like cpu"}
    assert found["origin"]["times"]["origin"] == "measured"


@pytest.mark.parametrize(
    "arguments, complaint",
    [
        (["--lanes", "3"], "3 lanes cannot be built"),
        (["--lanes", "4", "--flops", "1TFLOPS"], "a device has either --flops or --lanes"),
        (["--lanes", "4", "--like", "cpu"], "a device has either --lanes or --like"),
        (["--lanes", "4", "--clock", "50"], "--clock: '50' is no number of cycles a second"),
        (["--lanes", "4", "--utilisation", "0.5"], "--utilisation is for --flops"),
        (["--lanes", "4", "--formats", "q99"], "q99"),
        (["--flops", "1TFLOPS", "--clock", "50MHz"], "--clock is for --lanes"),
        (["--network", "nowhere.toml"], "nowhere.toml"),
        (["--network", "nowhere.toml", "--devices", "2"], "--devices is for devices that are alike"),
        (["--flops", "1TFLOPS", "--credits", "0"], "greater than or equal to 1"),
        (["--like", "abacus"], "abacus"),
        (["--like", "board:nowhere"], "is not there"),
        (["--like", "null"], "no node takes time there"),
        (["--method", "sleep"], "say how fast a device is"),
    ],
)
def test_devices_that_mean_nothing(amphw, arguments: list[str], complaint: str) -> None:
    done = amphw("estimate", *CIRCUIT, *arguments)
    assert done.exit_code != 0
    assert complaint in " ".join(done.stderr.replace("│", " ").split())
