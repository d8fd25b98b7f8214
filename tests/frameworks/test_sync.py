"""Which frameworks are waited for, and how."""

import sys
import types

from joulediff.frameworks.sync import open_sync


def test_nothing_is_waited_for_where_no_framework_is_loaded(monkeypatch):
    for name in ("torch", "jax", "tensorflow"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    assert open_sync() is None


def test_jax_outputs_and_tensorflow_devices_are_waited_for(monkeypatch):
    waited = []
    jax = types.SimpleNamespace(
        block_until_ready=waited.extend, tree_util=types.SimpleNamespace(tree_leaves=lambda tree: [tree])
    )
    devices = types.SimpleNamespace(list_logical_devices=lambda kind: [kind])
    sync = types.SimpleNamespace(experimental=types.SimpleNamespace(sync_devices=lambda: waited.append("tf")))
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.setitem(sys.modules, "jax", jax)
    monkeypatch.setitem(sys.modules, "tensorflow", types.SimpleNamespace(config=devices, test=sync))
    wait = open_sync().mark("output")
    assert waited == []
    wait()
    assert waited == ["output", "tf"]


def test_a_jax_program_that_donates_its_state_is_waited_for_at_once(monkeypatch):
    waited = []
    jax = types.SimpleNamespace(
        block_until_ready=lambda tree: waited.extend(tree if isinstance(tree, list) else [tree]),
        tree_util=types.SimpleNamespace(tree_leaves=lambda tree: [tree]),
    )
    monkeypatch.setitem(sys.modules, "jax", jax)
    from joulediff.frameworks.jax import JaxSync

    sync = JaxSync()
    gone, fresh = (types.SimpleNamespace(is_deleted=lambda deleted=deleted: deleted) for deleted in (True, False))
    sync.mark(gone)()
    assert waited == []
    sync.mark(fresh)
    assert waited == [fresh]
