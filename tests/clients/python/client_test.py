"""The Python Redis client against a running Terrace server.

Usage: client_test.py PORT

Each check is what a program that uses the client would do; the client parses replies its own way
and objects where we misread the protocol.
"""

import sys
import threading
import time

import limits
import redis

PORT = int(sys.argv[1])


def connect(**options):
    return redis.Redis(host="127.0.0.1", port=PORT, **options)


def strings(r):
    assert r.set("a", "1") is True
    assert r.get("a") == b"1"
    assert r.set("a", "2", nx=True) is None
    assert r.set("b", "2", nx=True) is True
    assert r.get("absent") is None
    assert r.append("a", "xyz") == 4
    assert r.strlen("a") == 4
    assert r.getrange("a", 1, 2) == b"xy"
    assert r.getset("a", "new") == b"1xyz"
    assert r.mset({"m1": "1", "m2": "2"}) is True
    assert r.mget("m1", "absent", "m2") == [b"1", None, b"2"]
    assert r.delete("m1", "m2", "absent") == 2
    assert r.exists("a", "m1") == 1
    every_byte = bytes(range(256)) * 100
    r.set(every_byte[:300], every_byte)
    assert r.get(every_byte[:300]) == every_byte


def counters(r):
    assert r.incr("n") == 1
    assert r.incrby("n", 41) == 42
    assert r.decr("n") == 41
    try:
        r.set("text", "abc")
        r.incr("text")
        raise AssertionError("a text was counted")
    except redis.ResponseError as error:
        assert "not an integer" in str(error), error


def expiry(r):
    r.set("soon", "x", px=60)
    time.sleep(0.1)
    assert r.get("soon") is None
    r.set("later", "x", px=100_000)
    assert 60_000 < r.pttl("later") <= 100_000
    assert 60 <= r.ttl("later") <= 100
    assert r.persist("later") is True
    assert r.ttl("later") == -1
    assert r.ttl("absent") == -2


def pipelines(r):
    pipe = r.pipeline(transaction=False)
    for i in range(5000):
        pipe.set(f"p{i}", i)
    for i in range(5000):
        pipe.get(f"p{i}")
    replies = pipe.execute()
    assert replies[:5000] == [True] * 5000
    assert replies[5000:] == [str(i).encode() for i in range(5000)]


def scans(r):
    found = {key for key in r.scan_iter(match="p*", count=300)}
    assert found == {f"p{i}".encode() for i in range(5000)}, len(found)
    assert r.dbsize() >= 5000


def transactions(r):
    with r.pipeline(transaction=True) as pipe:
        pipe.set("t", 1)
        pipe.incr("t")
        assert pipe.execute() == [True, 2]

    def add(pipe):
        value = int(pipe.get("shared") or 0)
        pipe.multi()
        pipe.set("shared", value + 1)

    def work():
        mine = connect()
        for _ in range(50):
            mine.transaction(add, "shared")

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert r.get("shared") == b"200", "an update was lost between WATCH and EXEC"


def locks(r):
    lock = r.lock("lock", timeout=10)
    assert lock.acquire()
    other = r.lock("lock", timeout=10, blocking=False)
    assert not other.acquire(), "two have one lock"
    lock.extend(10)
    assert 10 < r.ttl("lock") <= 20
    lock.reacquire()
    assert 0 < r.ttl("lock") <= 10
    lock.release()
    assert r.get("lock") is None
    try:
        lock.release()
        raise AssertionError("what nobody has was released")
    except redis.exceptions.LockError:
        pass

    held = []

    def work():
        mine = connect()
        for _ in range(25):
            with mine.lock("section", timeout=10):
                held.append(1)
                assert len(held) == 1, "two are in one section"
                held.pop()
                mine.incr("sections")

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert r.get("sections") == b"100"


def limiters(_):
    storage = limits.storage.storage_from_string(f"redis://127.0.0.1:{PORT}")
    limiter = limits.strategies.FixedWindowRateLimiter(storage)
    three = limits.parse("3 per hour")
    assert [limiter.hit(three, "ada") for _ in range(5)] == [True, True, True, False, False]
    assert limiter.hit(three, "grace")
    limiter.clear(three, "ada")
    assert limiter.hit(three, "ada")


def scripts(r):
    add = r.register_script("return redis.call('INCRBY', KEYS[1], ARGV[1])")
    assert add(keys=["added"], args=[5]) == 5
    r.script_flush()
    assert add(keys=["added"], args=[5]) == 10
    with r.pipeline(transaction=True) as pipe:
        add(keys=["added"], args=[1], client=pipe)
        pipe.get("added")
        assert pipe.execute() == [11, b"11"]


def databases(r):
    other = connect(db=2)
    other.set("here", "2")
    assert r.get("here") is None
    other.flushdb()
    assert other.dbsize() == 0
    assert r.dbsize() > 0


def third_protocol(_):
    r = connect(protocol=3)
    r.set("three", "3")
    assert r.get("three") == b"3"
    assert r.get("absent") is None
    hello = r.execute_command("HELLO", "3")
    proto = hello.get(b"proto", hello.get("proto"))
    assert proto == 3, hello


def introspection(r):
    info = r.info()
    assert info["db0"]["keys"] == r.dbsize()
    assert "maxmemory" in r.config_get("maxmemory")
    assert r.client_id() > 0
    r.client_setname("python")
    assert r.client_getname() in ("python", b"python")
    assert r.command_count() > 50


def errors(r):
    for words in (["NOSUCH"], ["GET"], ["SET", "a"], ["EXPIRE", "a", "soon"]):
        try:
            r.execute_command(*words)
            raise AssertionError(f"{words} was taken")
        except redis.ResponseError:
            pass
    assert r.ping() is True, "the connection outlives its errors"


def main():
    r = connect()
    r.flushall()
    checks = [
        strings, counters, expiry, pipelines, scans, transactions, locks, limiters, scripts, databases,
        third_protocol, introspection, errors,
    ]
    failed = 0
    for check in checks:
        try:
            check(r)
            print(f"test python::{check.__name__} ... ok", flush=True)
        except Exception as error:  # every check is run, whatever the first one met
            failed += 1
            print(f"test python::{check.__name__} ... FAILED: {error!r}", flush=True)
    print(f"python client {redis.__version__}: {len(checks) - failed} passed; {failed} failed")
    return 1 if failed else 0


sys.exit(main())
