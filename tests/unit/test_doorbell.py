from runner.processes.doorbell import Doorbell, ring


def heard(bell):
    import select

    return bool(select.select([bell], [], [], 1)[0])


def test_rings_wake_and_are_taken_all_at_once(tmp_path):
    bell = Doorbell(str(tmp_path), "runner.sock")
    assert ring(str(tmp_path), "runner.sock")
    assert ring(str(tmp_path), "runner.sock")
    assert heard(bell)
    bell.clear()
    import select

    assert not select.select([bell], [], [], 0)[0]
    bell.close()


def test_nobody_listens(tmp_path):
    assert ring(str(tmp_path), "runner.sock") is False
    Doorbell(str(tmp_path), "runner.sock").close()
    assert ring(str(tmp_path), "runner.sock") is False


def test_a_dead_listeners_address_is_taken_over(tmp_path):
    Doorbell(str(tmp_path), "runner.sock").close()
    bell = Doorbell(str(tmp_path), "runner.sock")
    assert ring(str(tmp_path), "runner.sock")
    assert heard(bell)
    bell.close()


def test_a_folder_deeper_than_a_socket_address_may_be_long(tmp_path):
    deep = tmp_path
    while len(str(deep)) < 300:
        deep = deep / ("x" * 40)
    bell = Doorbell(str(deep), "runner.sock")
    assert ring(str(deep), "runner.sock")
    assert heard(bell)
    bell.close()


def test_a_listener_that_does_not_listen_holds_nobody_up(tmp_path):
    bell = Doorbell(str(tmp_path), "runner.sock")
    assert all(ring(str(tmp_path), "runner.sock") for _ in range(5000))
    bell.close()
