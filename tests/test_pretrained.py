"""Trained maps on disk: what is written is what is read, and nothing else is."""

import json
import re

import pytest
import torch
from safetensors.torch import load, save

from amsip import pretrained
from amsip._disk import sha256
from amsip.maps.attention import AttentionMap
from amsip.maps.conditioned import ConditionedMap
from amsip.pretrained import MapCard, available_maps, load_card, load_map, save_map


def generator(rng_seed=0):
    return torch.Generator().manual_seed(rng_seed)


def trained(dim=3, dtype=torch.float64):
    net = AttentionMap(dim, width=8, heads=2, reach=0.25, generator=generator()).to(dtype)
    torch.nn.init.normal_(net.head.weight, generator=generator(1))
    return net


def nodes(dim=3):
    return torch.randn(2, 7, dim, generator=generator(2), dtype=torch.float64)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_a_map_survives_the_disk_bit_for_bit(tmp_path, dtype):
    net = trained(dtype=dtype)
    card = save_map(net, tmp_path / "mine.safetensors", about={"losses": [0.5]})
    again = load_map(tmp_path / "mine.safetensors")
    assert torch.equal(again(nodes()), net(nodes()))
    assert next(again.parameters()).dtype == dtype
    assert not again.training
    assert load_card(tmp_path / "mine.safetensors") == card
    assert (card.name, card.kind, card.settings["reach"], card.about) == ("mine", "attention", 0.25, {"losses": [0.5]})
    assert card.parameters == sum(p.numel() for p in net.parameters())


def test_the_twin_survives_the_disk(tmp_path):
    net = ConditionedMap(3, (11,), width=8, blocks=1, heads=2, generator=generator())
    torch.nn.init.normal_(net.head.weight, generator=generator(1))
    save_map(net, tmp_path / "twin.safetensors")
    y = torch.randn(11, generator=generator(3))
    again = load_map(str(tmp_path / "twin.safetensors"))
    assert torch.equal(again.given(y)(nodes()), net.given(y)(nodes()))


def test_loading_twice_gives_two_maps_and_leaves_the_random_state_alone(tmp_path):
    save_map(trained(), tmp_path / "mine.safetensors")
    before = torch.random.get_rng_state()
    first, second = load_map(tmp_path / "mine.safetensors"), load_map(tmp_path / "mine.safetensors")
    assert torch.equal(before, torch.random.get_rng_state())
    with torch.no_grad():
        first.head.weight.zero_()
    assert not torch.equal(first(nodes()), second(nodes()))


def test_the_same_weights_have_the_same_digest(tmp_path):
    first = save_map(trained(), tmp_path / "one.safetensors")
    second = save_map(trained(), tmp_path / "two.safetensors")
    assert first.sha256 == second.sha256 == sha256((tmp_path / "one.safetensors").read_bytes())


def test_one_changed_bit_is_refused(tmp_path):
    path = tmp_path / "mine.safetensors"
    save_map(trained(), path)
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)
    with pytest.raises(ValueError, match="must have SHA-256"):
        load_map(path)


def test_weights_of_another_map_are_refused(tmp_path):
    path = tmp_path / "mine.safetensors"
    save_map(trained(), path)
    tensors = load(path.read_bytes())
    tensors.pop("head.bias")
    path.write_bytes(save(tensors))
    card = json.loads(path.with_suffix(".json").read_text())
    path.with_suffix(".json").write_text(json.dumps({**card, "sha256": sha256(path.read_bytes())}))
    with pytest.raises(ValueError, match=r"`head.bias` is missing"):
        load_map(path)


def test_missing_files_and_newer_cards_are_named(tmp_path):
    path = tmp_path / "mine.safetensors"
    with pytest.raises(FileNotFoundError, match=re.escape("mine.safetensors does not exist")):
        load_map(path)
    save_map(trained(), path)
    card = path.with_suffix(".json")
    values = json.loads(card.read_text())
    card.write_text(json.dumps({**values, "schema": 2}))
    with pytest.raises(ValueError, match="must be of schema 1: got 2"):
        load_map(path)
    card.unlink()
    with pytest.raises(FileNotFoundError, match=re.escape("mine.json does not exist")):
        load_map(path)


def test_maps_outside_the_catalogue_cannot_be_saved(tmp_path):
    with pytest.raises(TypeError, match="must be a map of"):
        save_map(torch.nn.Linear(2, 2), tmp_path / "mine.safetensors")
    assert not list(tmp_path.iterdir())


def test_shipped_maps_are_found_by_name(tmp_path, monkeypatch):
    monkeypatch.setattr(pretrained, "SHIPPED", tmp_path)
    assert available_maps() == ()
    save_map(trained(), tmp_path / "small.safetensors")
    assert available_maps() == ("small",)
    assert torch.equal(load_map("small")(nodes()), trained()(nodes()))


@pytest.mark.parametrize("name", available_maps())
def test_shipped_weights_are_small_and_match_their_cards(name):
    card = load_card(name)
    node_map = load_map(name)
    assert isinstance(card, MapCard)
    assert card.name == name
    assert card.parameters == sum(p.numel() for p in node_map.parameters())
    assert (pretrained.SHIPPED / f"{name}.safetensors").stat().st_size < 2_000_000
    if card.about.get("note") == "interim":
        pytest.xfail("interim weights: their card does not name the command that makes them again")
    assert card.about["command"]
