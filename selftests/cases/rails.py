# SPDX-License-Identifier: GPL-2.0
"""One mount over two devices and two addresses of the server.  They need a lab with two cables:
`make check-rails`."""

import contextlib
import json
import os
import subprocess

from lib import rails, wait
from lib.case import ENV, case, check, equal
from lib.env import REPO
from lib.load import Load

STATUS = REPO / "tools/xprtrdma-status"
KIB = 1024
# After a port event, and after silence (the bounds).
AT_ONCE, NOTICED = 1, 8
MINUTE, FLAPPING_SECONDS = 60, 20
VERSIONS = ("3", "4.0", "4.2")
# Left out where there is one cable.
CLIENTS = ("ours",) if len(rails.DEVICES) > 1 else ()


def mounted(t, nconnect=4):
    """A mount over both rails, each connection of which has been made."""
    rails.set_up()
    t.defer(rails.set_up, "off", "")
    mount = t.mount(f"nconnect={nconnect}")
    wait.until(lambda: os.statvfs(mount.where) and rails.is_even()
               and len(rails.devices()) == nconnect, ENV.patience(20),
               f"{nconnect} connections, evenly")
    return mount


def pass_by(seconds):
    """So long a state lasts that shall last so long."""
    clock = wait.Clock()
    wait.until(lambda: clock.seconds() > seconds, ENV.patience(seconds + 1), f"{seconds} s")


def survives(t, fault, number, bound, connections=4, hold=5):
    """A rail fails under verified load: how long the longest call took."""
    mount = mounted(t, connections)
    top = t.directory(mount, "pulses")
    with Load(t, mount, 64 * KIB), rails.Pulses(top.here, connections) as pulses:
        moves = rails.counter("rail_failovers")
        pulses.reset()
        clock = wait.Clock()
        with fault(t.server, number):
            wait.until(lambda: clock.seconds() > hold and not rails.spread()[number],
                       ENV.patience(bound + hold), "the rail is left")
            pulses.all_beat(ENV.patience(bound))
            longest = pulses.longest()
            equal(rails.spread()[number], 0, "connections on the rail that failed")
            check(rails.counter("rail_failovers") > moves, "no failover was counted")
        t.note(f"longest call: {longest:.2f} s")
        check(longest <= bound * ENV.factor, f"a call took {longest:.2f} s")
        return mount, pulses, clock


# covers: issue K: connections of a mount are spread evenly, also those of several mounts; the
# devices' counters say so.
@case(versions=VERSIONS, clients=CLIENTS, seconds=90)
def connections_are_spread_over_both_rails(t):
    mount = mounted(t)
    equal(rails.spread(), [2, 2], "connections on each device")
    equal(rails.standing(), dict.fromkeys(rails.DEVICES, "live"), "rails")
    before = rails.traffic()
    with Load(t, mount, 64 * KIB, writers=4) as load:
        load.wait_progress(60, 30)
        after = rails.traffic()
    shares = [b - a for a, b in zip(before, after, strict=True)]
    t.note(f"packets of each device: {shares}")
    check(min(shares) * 2 > max(shares), f"packets of each device: {shares}")


# covers: issue K: a rail whose port goes down is left within a second, nothing is lost or torn.
@case(versions=VERSIONS, clients=CLIENTS, seconds=150)
def a_cut_cable_costs_a_second(t):
    survives(t, rails.cable_out, 0, AT_ONCE)


# covers: issue K: silence is noticed within eight seconds.
@case(versions=VERSIONS, clients=CLIENTS, seconds=150, stock_only=True)
def silence_costs_eight_seconds(t):
    survives(t, rails.silence, 1, NOTICED, hold=10)


# covers: issue K: a device that goes is left at once, and used again when it is back.
@case(versions=VERSIONS, clients=CLIENTS, seconds=150)
def a_device_that_goes_costs_a_second(t):
    survives(t, rails.device_gone, 1, AT_ONCE)


# covers: issue J: the verdict of xprtrdma-status names the rail that is lost, and no other cause.
@case(versions=("4.2",), clients=CLIENTS, seconds=90)
def a_lost_rail_is_named(t):
    mount = mounted(t)

    def told():
        done = subprocess.run((STATUS, "--json", mount.where), stdout=subprocess.PIPE, text=True,
                              timeout=ENV.patience(60), check=False)
        one, = json.loads(done.stdout)["mounts"]
        return done.returncode, one

    code, one = told()
    check(code == 0 and "a rail is lost" not in str(one["verdict"]), one["verdict"])
    with rails.cable_out(t.server, 1):
        wait.until(lambda: rails.spread() == [4, 0], ENV.patience(20), "the rail is left")
        code, one = told()
    found = [line for line in one["verdict"] if "a rail is lost" in line]
    check(len(found) == 1 and f"({rails.DEVICES[1]}/1)" in found[0], one["verdict"])
    equal((code, one["level"], one["verdict"][0]), (1, "warning", found[0]), "verdict")


# covers: issue K: the numbers are even again within a minute after the rail is back, and nobody
# who uses the mount waits for that.
@case(versions=("3", "4.2"), clients=CLIENTS, seconds=300)
def connections_return_within_a_minute(t):
    mount = mounted(t)
    top = t.directory(mount, "pulses")
    with Load(t, mount, 64 * KIB), rails.Pulses(top.here, 4) as pulses:
        out = wait.Clock()
        with rails.cable_out(t.server, 0):
            # So long that the end of the minute after its death is no later than that after its
            # return.
            wait.until(lambda: out.seconds() > 20 and not rails.spread()[0], ENV.patience(40),
                       "the rail is left")
        back = wait.Clock()
        pulses.reset()
        wait.until(rails.is_even, MINUTE * ENV.factor, "even again")
        taken, longest = back.seconds(), pulses.longest()
        t.note(f"even again {taken:.0f} s after the rail was back; longest call {longest:.2f} s")
        check(taken <= MINUTE * ENV.factor, f"even again after {taken:.0f} s")
        check(longest <= AT_ONCE * ENV.factor, f"a call took {longest:.2f} s")
        equal(rails.counter("rail_moves") > 0, True, "moves were counted")


# covers: issue K: with both rails gone the mount waits, and goes on with the first that is back.
@case(versions=("3", "4.2"), clients=CLIENTS, seconds=240)
def both_gone_and_one_back(t):
    mount = mounted(t)
    top = t.directory(mount, "pulses")
    with Load(t, mount, 64 * KIB), rails.Pulses(top.here, 2) as pulses, \
            rails.device_gone(t.server, 1), contextlib.ExitStack() as first:
        first.enter_context(rails.device_gone(t.server, 0))
        wait.until(lambda: pulses.longest() > 3, ENV.patience(20), "everybody waits")
        first.close()
        taken = pulses.all_beat(ENV.patience(30))
        t.note(f"goes on {taken:.1f} s after one rail is back")
        equal(rails.spread()[1], 0, "connections on the one that is gone")


# covers: issue K: a flapping rail moves nobody twice in a minute.
@case(versions=("4.2",), clients=CLIENTS, seconds=200)
def a_flapping_rail_is_left_alone(t):
    mount = mounted(t)
    top = t.directory(mount, "pulses")
    with rails.Pulses(top.here, 4) as pulses:
        connects = mount.connects()
        clock, turns = wait.Clock(), 0
        while clock.seconds() < FLAPPING_SECONDS:
            turns += 1
            with rails.device_gone(t.server, 0):
                pass_by(0.5)
            pass_by(0.5)
        pulses.all_beat(ENV.patience(10))
        t.note(f"{turns} turns, {mount.connects() - connects} connections were made")
        # Those of the rail moved once; none came back in so short a time.
        check(mount.connects() - connects <= 2, "connections went to and fro")
        equal(rails.spread(), [0, 4], "connections on each device")


# covers: issue K: tables change under live mounts: what is taken off the list is left, what is put
# on it gets its share.
@case(versions=("4.2",), clients=CLIENTS, seconds=200)
def tables_change_under_live_mounts(t):
    mount = mounted(t)
    top = t.directory(mount, "pulses")
    with Load(t, mount, 64 * KIB), rails.Pulses(top.here, 4) as pulses:
        pulses.reset()
        rails.set_up(rails.DEVICES[1])
        wait.until(lambda: rails.spread() == [0, 4], ENV.patience(30), "the first rail is left")
        rails.set_up("auto")
        wait.until(rails.is_even, ENV.patience(40), "even again")
        rails.set_up("off")
        rails.set_up("auto")
        pulses.all_beat(ENV.patience(10))
        longest = pulses.longest()
        t.note(f"longest call: {longest:.2f} s")
        check(longest <= AT_ONCE * ENV.factor, f"a call took {longest:.2f} s")


# covers: issue K: mounts that were made without rails take them when there are some.
@case(versions=("3",), clients=CLIENTS, seconds=150)
def mounts_from_before_take_rails(t):
    rails.set_up("off", "")
    t.defer(rails.set_up, "off", "")
    mount = t.mount("nconnect=4")
    wait.until(lambda: os.statvfs(mount.where) and len(rails.devices()) == 4, ENV.patience(20),
               "four connections")
    equal(rails.spread(), [4, 0], "connections without rails")
    rails.set_up()
    wait.until(lambda: os.statvfs(mount.where) and rails.is_even(), ENV.patience(60), "even")
