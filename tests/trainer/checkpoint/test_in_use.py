from trainer.checkpoint import in_use


def test_holders_come_and_go(tmp_path):
    checkpoint = tmp_path / "step-000010"
    checkpoint.mkdir()
    assert in_use.holders(checkpoint) == set()
    assert (
        in_use.hold(checkpoint, "run-1")
        and in_use.hold(checkpoint, "run-1")
        and in_use.hold(checkpoint, "channel-production")
    )
    assert in_use.holders(checkpoint) == {"run-1", "channel-production"}
    assert not in_use.remove_unless_held(checkpoint)
    in_use.release(checkpoint, "run-1")
    in_use.release(checkpoint, "run-1")
    assert not in_use.remove_unless_held(checkpoint)
    in_use.release(checkpoint, "channel-production")
    assert in_use.remove_unless_held(checkpoint)
    assert list(tmp_path.iterdir()) == []
    assert not in_use.hold(checkpoint, "run-1")
    in_use.release(checkpoint, "run-1")


def test_whoever_came_while_it_was_retired_keeps_it(tmp_path, monkeypatch):
    checkpoint = tmp_path / "step-000010"
    checkpoint.mkdir()
    real, calls = in_use.holders, []

    def late(path):
        calls.append(path)
        if len(calls) == 1:  # looked, and then somebody holds it
            found = real(path)
            in_use.hold(checkpoint, "run-1")
            return found
        return real(path)

    monkeypatch.setattr(in_use, "holders", late)
    assert not in_use.remove_unless_held(checkpoint)
    assert real(checkpoint) == {"run-1"}


def test_what_a_killed_process_left_goes_with_the_next(tmp_path):
    checkpoint = tmp_path / "step-000010"
    (tmp_path / ".step-000010.retired").mkdir()
    checkpoint.mkdir()
    assert in_use.remove_unless_held(checkpoint)
    assert list(tmp_path.iterdir()) == []
