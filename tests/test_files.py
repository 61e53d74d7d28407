"""Rules and draws on disk: what is written comes back bit for bit, and nothing foreign gets in."""

import io
import json
import pickle
import zipfile

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from amsip import Rule, load_metadata, load_rule, read_draws, save_rule
from amsip import files as rule_files


def a_rule(shape=(5, 3), dtype=torch.float64, *, emission=False):
    generator = torch.Generator().manual_seed(3)
    nodes = torch.randn(*shape, generator=generator, dtype=dtype)
    weights = torch.randn(shape[:-1], generator=generator, dtype=dtype)
    kept = torch.ones(shape[:-2], dtype=torch.int64) if emission else None
    return Rule(nodes, weights, emission=kept)


@given(
    queries=st.lists(st.integers(1, 3), max_size=2),
    m=st.integers(1, 7),
    d=st.integers(1, 5),
    dtype=st.sampled_from([torch.float32, torch.float64]),
    emission=st.booleans(),
)
def test_a_rule_comes_back_bit_for_bit(tmp_path_factory, queries, m, d, dtype, emission):
    rule = a_rule((*queries, m, d), dtype, emission=emission)
    path = tmp_path_factory.mktemp("rules") / "rule.npz"
    save_rule(rule, path)
    back = load_rule(path)
    assert back.nodes.dtype == dtype
    assert torch.equal(back.nodes, rule.nodes)
    assert torch.equal(back.weights, rule.weights)
    assert (back.emission is None) == (not emission)
    if emission:
        assert torch.equal(back.emission, rule.emission)


def test_a_pooled_rule_remembers_its_batches(tmp_path):
    rule = Rule(torch.zeros(6, 2), torch.ones(6), batches=3)
    save_rule(rule, tmp_path / "rule.npz")
    assert load_rule(tmp_path / "rule.npz").batches == 3


def test_names_and_notes_come_back(tmp_path):
    save_rule(a_rule(), tmp_path / "rule.npz", names=["a", "b", "ß"], notes={"source": {"chains": 4}})
    metadata = load_metadata(tmp_path / "rule.npz")
    assert metadata.names == ("a", "b", "ß")
    assert metadata.notes == {"source": {"chains": 4}}


def test_numpy_alone_reads_a_rule(tmp_path):
    rule = a_rule()
    save_rule(rule, tmp_path / "rule.npz")
    with np.load(tmp_path / "rule.npz", allow_pickle=False) as file:
        assert np.array_equal(file["weights"] @ file["nodes"], (rule.weights.numpy() @ rule.nodes.numpy()))


@pytest.mark.parametrize(
    ("names", "notes", "message"), [(["a"], None, "one entry per parameter"), ([], {"x": object()}, "JSON")]
)
def test_what_cannot_be_kept_is_refused_before_writing(tmp_path, names, notes, message):
    with pytest.raises(ValueError, match=message):
        save_rule(a_rule(), tmp_path / "rule.npz", names=names, notes=notes)
    assert list(tmp_path.iterdir()) == []


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "rule.npz"
    save_rule(a_rule(), path)
    before = path.read_bytes()

    def full_disk(descriptor):
        raise OSError("no space left")

    monkeypatch.setattr("os.fsync", full_disk)
    with pytest.raises(OSError, match="no space"):
        save_rule(a_rule((2, 2)), path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["rule.npz"]


@given(cut=st.floats(0.0, 0.999))
def test_a_truncated_file_is_an_error(tmp_path_factory, cut):
    path = tmp_path_factory.mktemp("cut") / "rule.npz"
    save_rule(a_rule((40, 3)), path)
    content = path.read_bytes()
    path.write_bytes(content[: int(cut * len(content))])
    with pytest.raises(ValueError, match=r"rule\.npz"):
        load_rule(path)


@given(position=st.integers(0, 10_000), value=st.integers(0, 255))
def test_a_flipped_byte_is_an_error_or_harmless(tmp_path_factory, position, value):
    path = tmp_path_factory.mktemp("flip") / "rule.npz"
    rule = a_rule((40, 3))
    save_rule(rule, path)
    content = bytearray(path.read_bytes())
    content[position % len(content)] = value
    path.write_bytes(bytes(content))
    try:
        back = load_rule(path)
    except ValueError:
        return
    assert torch.equal(back.nodes, rule.nodes)
    assert torch.equal(back.weights, rule.weights)


def write_npz(path, **arrays):
    np.savez(path, **arrays)


def metadata_of(**content):
    return np.frombuffer(json.dumps(content).encode(), dtype=np.uint8)


GOOD = {"format": "amsip.rule", "schema": 1, "version": "9", "names": [], "notes": {}}


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": np.zeros(3)}, "is not a rule: it has no"),
        ({"nodes": np.zeros((3, 2)), "weights": np.ones(3), "metadata": np.zeros(4, np.uint8)}, "is not a rule"),
        ({"nodes": np.zeros((3, 2)), "weights": np.ones(3), "metadata": metadata_of(a=1)}, "is not a rule"),
        (
            {"nodes": np.zeros((3, 2)), "weights": np.ones(3), "metadata": metadata_of(**GOOD | {"format": "other"})},
            "'other'",
        ),
        (
            {"nodes": np.zeros((3, 2)), "weights": np.ones(3), "metadata": metadata_of(**GOOD | {"schema": 2})},
            "newer than 1: read it with amsip 9",
        ),
        ({"nodes": np.zeros((3, 2)), "weights": np.ones(4), "metadata": metadata_of(**GOOD)}, "4,.* weights"),
        ({"nodes": np.zeros(3), "weights": np.ones(3), "metadata": metadata_of(**GOOD)}, "is not a rule"),
        ({"nodes": np.zeros((3, 2), int), "weights": np.ones(3), "metadata": metadata_of(**GOOD)}, "is not a rule"),
        ({"nodes": np.full((3, 2), np.nan), "weights": np.ones(3), "metadata": metadata_of(**GOOD)}, "finite"),
    ],
)
def test_a_foreign_file_is_named_and_refused(tmp_path, arrays, message):
    write_npz(tmp_path / "rule.npz", **arrays)
    with pytest.raises(ValueError, match=message):
        load_rule(tmp_path / "rule.npz")


class Bomb:
    def __reduce__(self):
        return (pytest.fail, ("a pickle was run",))


def test_a_pickle_inside_is_never_run(tmp_path):
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(stream, {"descr": "|O", "fortran_order": False, "shape": (1,)})
    stream.write(pickle.dumps(Bomb()))
    with zipfile.ZipFile(tmp_path / "rule.npz", "w") as archive:
        for name in ("nodes", "weights", "metadata"):
            archive.writestr(f"{name}.npy", stream.getvalue())
    for read in (load_rule, read_draws):
        with pytest.raises(ValueError, match="not a readable"):
            read(tmp_path / "rule.npz")


def test_a_header_that_promises_too_much_allocates_nothing(tmp_path):
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(stream, {"descr": "<f8", "fortran_order": False, "shape": (10**12, 3)})
    with zipfile.ZipFile(tmp_path / "rule.npz", "w") as archive:
        archive.writestr("nodes.npy", stream.getvalue())
    with pytest.raises(ValueError, match="does not fit"):
        load_rule(tmp_path / "rule.npz")


def test_a_file_that_unpacks_beyond_the_limit_is_refused(tmp_path, monkeypatch):
    save_rule(a_rule((400, 3)), tmp_path / "rule.npz")
    monkeypatch.setattr(rule_files, "MAX_BYTES", 1000)
    with pytest.raises(ValueError, match="above the limit"):
        load_rule(tmp_path / "rule.npz")


TABLE = np.array([[1.0, -2.5], [3.0, 4.25], [0.125, 1e-9]])


def written(tmp_path, suffix):
    path = tmp_path / f"draws{suffix}"
    if suffix == ".npy":
        np.save(path, TABLE)
    elif suffix == ".npz":
        np.savez(path, a=TABLE[:, 0], b=TABLE[:, 1])
    elif suffix == ".csv":
        np.savetxt(path, TABLE, delimiter=",", header="a,b", comments="")
    else:
        xarray = pytest.importorskip("xarray")
        data = {"a": (("chain", "draw"), TABLE[None, :, 0]), "b": (("chain", "draw"), TABLE[None, :, 1])}
        xarray.Dataset(data).to_netcdf(path, group="posterior", engine="h5netcdf")
    return path


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".csv", ".nc"])
def test_every_format_gives_the_same_table(tmp_path, suffix):
    draws = read_draws(written(tmp_path, suffix))
    assert np.allclose(draws.values.numpy(), TABLE, rtol=0, atol=1e-15)
    assert draws.values.dtype == torch.float64
    assert draws.names == (("x0", "x1") if suffix == ".npy" else ("a", "b"))


@pytest.mark.parametrize("suffix", [".npz", ".csv", ".nc"])
def test_columns_are_chosen_in_the_order_given(tmp_path, suffix):
    draws = read_draws(written(tmp_path, suffix), columns=["b", "a"])
    assert draws.names == ("b", "a")
    assert np.allclose(draws.values.numpy(), TABLE[:, ::-1])


@pytest.mark.parametrize("suffix", [".npz", ".csv", ".nc"])
def test_an_unknown_column_lists_those_there_are(tmp_path, suffix):
    with pytest.raises(ValueError, match=r"no column 'c': its columns are \['a', 'b'\]"):
        read_draws(written(tmp_path, suffix), columns=["c"])


def test_a_weights_column_is_taken_out(tmp_path):
    draws = read_draws(written(tmp_path, ".csv"), weights_column="b")
    assert draws.names == ("a",)
    assert np.allclose(draws.weights.numpy(), TABLE[:, 1])


def test_csv_without_header_and_with_comments(tmp_path):
    path = tmp_path / "draws.csv"
    path.write_text("# a comment\n1,2\n\n3,4\n# adaptation\n5,6\n")
    draws = read_draws(path)
    assert draws.values.tolist() == [[1, 2], [3, 4], [5, 6]]


def test_stan_diagnostics_are_left_out_unless_named(tmp_path):
    path = tmp_path / "draws.csv"
    path.write_text("# stan\nlp__,theta\n-1,2\n-3,4\n")
    assert read_draws(path).names == ("theta",)
    assert read_draws(path, columns=["lp__"]).values.tolist() == [[-1], [-3]]


def test_the_row_numbers_of_a_data_frame_are_no_parameter(tmp_path):
    path = tmp_path / "draws.csv"
    path.write_text(",a,b\n0,1,2\n1,3,4\n")
    draws = read_draws(path)
    assert draws.names == ("a", "b")
    assert draws.values.tolist() == [[1, 2], [3, 4]]


@pytest.mark.parametrize("content", ["", "a,b\n", "a,b\n1,2\n3\n", "a,b\n1,x\n", "# nothing\n"])
def test_a_bad_csv_is_a_clear_error(tmp_path, content):
    path = tmp_path / "draws.csv"
    path.write_text(content)
    with pytest.raises(ValueError, match=r"draws\.csv"):
        read_draws(path)


def test_vectors_are_flattened_with_their_index(tmp_path):
    np.savez(tmp_path / "draws.npz", theta=np.arange(12.0).reshape(3, 2, 2), tau=np.arange(3.0))
    draws = read_draws(tmp_path / "draws.npz")
    assert draws.names == ("theta[0,0]", "theta[0,1]", "theta[1,0]", "theta[1,1]", "tau")
    assert draws.values[1].tolist() == [4, 5, 6, 7, 1]
    assert read_draws(tmp_path / "draws.npz", columns=["theta"]).values.shape == (3, 4)
    assert read_draws(tmp_path / "draws.npz", columns=["theta[1,0]"]).values[:, 0].tolist() == [2, 6, 10]


def test_netcdf_stacks_chains_before_draws(tmp_path):
    xarray = pytest.importorskip("xarray")
    values = np.arange(2 * 3 * 2.0).reshape(2, 3, 2)
    data = {"theta": (("chain", "draw", "theta_dim_0"), values)}
    xarray.Dataset(data).to_netcdf(tmp_path / "draws.nc", group="posterior", engine="h5netcdf")
    draws = read_draws(tmp_path / "draws.nc")
    assert draws.names == ("theta[0]", "theta[1]")
    assert np.array_equal(draws.values.numpy(), values.reshape(6, 2))


def test_npz_of_samples_with_names_and_weights(tmp_path):
    np.savez(tmp_path / "draws.npz", samples=TABLE, names=np.array(["p", "q"]), weights=np.array([1.0, 2.0, 3.0]))
    draws = read_draws(tmp_path / "draws.npz")
    assert draws.names == ("p", "q")
    assert draws.weights.tolist() == [1, 2, 3]


def test_three_axes_must_be_explained(tmp_path):
    values = np.arange(2 * 3 * 5.0).reshape(2, 3, 5)
    np.save(tmp_path / "draws.npy", values)
    with pytest.raises(ValueError, match="`leading`"):
        read_draws(tmp_path / "draws.npy")
    assert np.array_equal(read_draws(tmp_path / "draws.npy", leading="chains").values.numpy(), values.reshape(6, 5))
    assert read_draws(tmp_path / "draws.npy", leading="queries").values.shape == (2, 3, 5)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("draws.npy", b"not an array"),
        ("draws.npz", b"PK\x03\x04 broken"),
        ("draws.nc", b"not netcdf"),
        ("draws.txt", b"1,2"),
    ],
)
def test_unreadable_files_are_value_errors(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=r"draws|suffix"):
        read_draws(tmp_path / name)


def test_text_and_complex_arrays_are_refused(tmp_path):
    for array in (np.array(["a", "b"]), np.zeros((3, 2), complex)):
        np.savez(tmp_path / "draws.npz", samples=array)
        with pytest.raises(ValueError, match="real numbers"):
            read_draws(tmp_path / "draws.npz")
