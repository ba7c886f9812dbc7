# SPDX-License-Identifier: GPL-2.0
"""Tests that xprtrdma-status reads the kernel's files and draws the right conclusions."""

import contextlib
import importlib.util
import io
import json
import pathlib
import re
import subprocess
import tarfile
import tempfile
import unittest
from importlib.machinery import SourceFileLoader
from typing import Any

from lablib.base.paths import REPO

LOADER = SourceFileLoader("xprtrdma_status", str(REPO / "tools/xprtrdma-status"))
SPEC = importlib.util.spec_from_loader("xprtrdma_status", LOADER)
assert SPEC
status: Any = importlib.util.module_from_spec(SPEC)
LOADER.exec_module(status)

MOUNT = """\
device 192.0.2.1:/srv/mem mounted on /mnt/a\\040b with fstype nfs4 statvers=1.1
\topts:\trw,vers=4.2,hard,proto=rdma,nconnect=2,port=20049,sec=sys
\tage:\t11
\txprt:\trdma 0 0 {connects} 0 0 {sends} {recvs} 0 95 0 4 64 5 4225556 4195672 15500 9668 0 0 0 0 0 0 8 0 0 0
\tper-op statistics
\t        NULL: 1 1 0 40 24 92 40 134 0
\t        READ: {calls} {transmissions} {timeouts} 22704 8402024 {queued} {answered} 2062 0
device tmpfs mounted on /tmp with fstype tmpfs
device 192.0.2.9:/x mounted on /mnt/t with fstype nfs statvers=1.1
\txprt:\ttcp 0 0 1 0 0 1 1 0 0 0
"""  # noqa: E501
INFO = """\
last_used=4294898174
cur_cong={used}
cong_win={window}
max_num_slots=128
sending_q_len={sending}
pending_q_len={pending}
backlog_q_len=0
src_port=55040
dst_port=20049
"""
STATE = """\
transport: xprt-7-rdma
netns: 4026531840
peer: 192.0.2.1:20049
phase: {phase}
failures in a row: {failed}
{more}device: rxe0, port 1
version: 1
inline: 4096 out, 4096 in
remote invalidation: announced by the server: no; used by it: yes
credits: 128 requested, {granted} granted, 0 with calls given up
regions: 8 made, 7 free, 257 pages each
"""
NUMBERS = {"connects": 1, "sends": 89, "recvs": 89, "calls": 129, "transmissions": 129,
           "timeouts": 0, "queued": 69, "answered": 1967, "used": 0, "window": 128, "sending": 0,
           "pending": 0, "phase": "up", "failed": 0, "more": "", "granted": 128}


class Machine:
    """The files in /proc and /sys that a kernel with one mount shows."""

    def __init__(self, root, **changed):
        self.root = pathlib.Path(root)
        words = {**NUMBERS, **changed}
        words["used"], words["window"] = words["used"] * 256, words["window"] * 256
        connected = changed.get("connected", True)
        xprt = "sys/kernel/sunrpc/xprt-switches/switch-3/xprt-7-rdma"
        self.write(status.MOUNTSTATS, MOUNT.format(**words))
        self.write(status.MOUNTINFO, "50 34 0:44 / /mnt/a\\040b rw - nfs4 192.0.2.1:/srv/mem rw\n")
        self.write(f"{xprt}/xprt_info", INFO.format(**words) if connected else "<closed>\n")
        self.write(f"{xprt}/xprt_state", "state= CONNECTED BOUND" if connected else "state= BOUND")
        self.write(f"{xprt}/dstaddr", "192.0.2.1\n")
        self.write(f"{xprt}/srcaddr", f"{changed.get('local', '192.0.2.2')}\n")
        self.write("sys/module/xprtrdma_rs/version", "0.2.0\n")
        if changed.get("ours", True):
            self.write(f"{status.DEBUGFS}/7/state", STATE.format(**words))
            self.write(f"{status.DEBUGFS}/7/counters", changed.get("counters", "reminv: 5\n"))
            self.write(f"{status.DEBUGFS}/parameters", f"rails: {changed.get('table', 'off')}\n")
            tasks = "".join(" 1 1 0 0x0 0 nfs_ops nfsv3 GETATTR a:f q:xprt_pending\n"
                            for _ in range(changed.get("tasks", 0)))
            self.write(f"{status.TASKS}/4/tasks", tasks)
        self.link("sys/fs/nfs/0:44/nfs_client", "../../../kernel/sunrpc/rpc-clients/clnt-4")
        self.link("sys/kernel/sunrpc/rpc-clients/clnt-4/switch",
                  "../../xprt-switches/switch-3")

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def link(self, name, target):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(target)

    def look(self):
        return status.look(status.Kernel(self.root))["/mnt/a b"]


def look(**changed):
    with tempfile.TemporaryDirectory() as root:
        return Machine(root, **changed).look()


def said(before, now, seconds=1.0):
    """Returns the worst level of the verdict, and all sentences of the verdict as one text."""
    found = status.verdict(look(**before), look(**now), seconds)
    return found[0][0], " ".join(sentence for _, sentence in found)


class Reading(unittest.TestCase):
    def test_a_mount_and_its_connection(self):
        found = look(used=3, window=64)
        self.assertEqual((found.source, found.version(), found.age),
                         ("192.0.2.1:/srv/mem", "4.2", 11))
        one, = found.connections
        self.assertEqual((one.xprt, one.server, one.client, one.connected),
                         (7, "192.0.2.1:20049", "192.0.2.2:55040", True))
        self.assertEqual((one.in_flight, one.window, one.slots), (3, 64, 128))
        self.assertEqual(one.statistics["sends"], 89)
        self.assertEqual(one.details["credits"],
                         {"requested": 128, "granted": 128, "given_up": 0})
        self.assertEqual(one.details["remote_invalidation"], "used")
        self.assertEqual(one.details["counters"], {"reminv": 5})

    def test_the_in_tree_client_has_no_details(self):
        one, = look(ours=False, local="<not a socket>").connections
        self.assertIsNone(one.details)
        self.assertTrue(one.connected)
        self.assertEqual((one.server, one.client), ("192.0.2.1:20049", ""))

    def test_a_collection_reads_as_the_machine_did(self):
        with tempfile.TemporaryDirectory() as root, tempfile.TemporaryDirectory() as out:
            machine = Machine(root, used=2)
            archive = pathlib.Path(out) / "report.tar.gz"
            seconds, status.SAMPLE_SECONDS = status.SAMPLE_SECONDS, 0
            try:
                status.collect(status.Kernel(machine.root), archive)
            finally:
                status.SAMPLE_SECONDS = seconds
            with tarfile.open(archive) as file:
                file.extractall(out)
            again = status.look(status.Kernel(pathlib.Path(out) / "xprtrdma-status"))
            self.assertEqual(again["/mnt/a b"], machine.look())


class Judging(unittest.TestCase):
    def test_an_idle_mount_is_well(self):
        self.assertEqual(said({}, {}), ("ok", "well, and idle"))

    def test_traffic_is_told_by_where_the_time_goes(self):
        level, text = said({}, {"calls": 139, "transmissions": 139, "answered": 1987})
        self.assertEqual((level, text), ("ok", "well: 10 calls a second; the server answers in "
                                               "2.0 ms"))
        _, text = said({}, {"calls": 139, "transmissions": 139, "queued": 169})
        self.assertIn("wait 10.0 ms here", text)

    def test_a_server_that_answers_nothing(self):
        level, text = said({"used": 4}, {"used": 5, "pending": 5})
        self.assertEqual(level, "warning")
        self.assertIn("5 calls are with the server, and it has answered none", text)
        # A single reading of the files is not enough to conclude that the server does not answer.
        self.assertEqual(said({"used": 4}, {"used": 4}, 0)[0], "ok")

    def test_a_dead_server_with_its_reason(self):
        down = {"connected": False, "phase": "waiting", "failed": 3,
                "more": "last failure: no answer to the connection request (after 15.0 s), "
                        "4.0 s ago\n"}
        level, text = said(down, down)
        self.assertEqual(level, "error")
        self.assertIn("3 attempts in a row failed", text)
        self.assertIn("; 0 calls of the mount are under way", text)
        self.assertIn("no answer to the connection request", text)

    def test_a_port_that_is_down_is_told(self):
        down = {"connected": False, "phase": "connecting", "tasks": 1,
                "more": "device event: port active, 90.5 s ago\n"
                        "device event: port down, 2.0 s ago\n"}
        text = said(down, down)[1]
        # The conclusion that the port is down comes before all conclusions about the server.
        own = "this host's RDMA device told: port down, 2.0 s ago: look at this host's port"
        self.assertEqual(text[:len(own)], own)
        self.assertIn("no connection (connecting); 1 calls", text)
        silent = {"used": 4, "more": down["more"]}
        text = said(silent, silent)[1]
        self.assertEqual(text[:len(own)], own)
        self.assertNotIn("it is slow", text)
        back = {**down, "more": "device event: port active, 1.5 s ago\n"
                                "device event: port down, 2.0 s ago\n"}
        self.assertNotIn("told", said(back, back)[1])

    def test_a_lost_rail_is_named_once(self):
        rails = ("rail: 192.0.2.2 (rxe0/1) to 192.0.2.1: live for 90.0 s, 2 connections, this one\n"
                 "rail: 198.51.100.2 (rxe1/1) to 198.51.100.1: dead for 3.2 s, 0 connections\n")
        level, text = said({"more": rails}, {"more": rails})
        self.assertEqual((level, text), (
            "warning", "a rail is lost: 198.51.100.2 (rxe1/1) to 198.51.100.1; connections use "
                       "the others"))
        well = {"more": rails.replace("dead", "live")}
        self.assertEqual(said(well, well), ("ok", "well, and idle"))
        down = {"connected": False, "phase": "connecting", "tasks": 1,
                "more": rails.replace("live", "dead")}
        level, text = said(down, down)
        self.assertEqual(level, "error")
        self.assertIn("; a rail is lost: 192.0.2.2 (rxe0/1) to 192.0.2.1; a rail is lost: 198",
                      text)

    def test_tables_of_which_no_second_rail_comes(self):
        one = "rail: 192.0.2.2 (rxe0/1) to 192.0.2.1: live for 90.0 s, 1 connections, this one\n"
        gone = "rail: 192.0.2.3 (rxe1/1) to 192.0.2.1: gone for 1.0 s, 1 connections\n"
        table = {"table": "rxe0 nosuch0"}
        for more, word in (("", "no rail leads"), (one, "only one rail leads"),
                           (one + gone, "only one rail leads")):
            level, text = said({"more": more, **table}, {"more": more, **table})
            self.assertEqual(level, "note")
            self.assertIn(f"{word} to this server: no redundancy (rails: rxe0 nosuch0;", text)
        two = one + one.replace("rxe0", "rxe1")
        for well in ({"more": one, "table": "off"}, {"more": two, **table}):
            self.assertEqual(said(well, well), ("ok", "well, and idle"))

    def test_a_connection_that_nobody_needs(self):
        down = {"connected": False, "phase": "down"}
        self.assertEqual(said(down, down)[0], "note")
        needed = {**down, "phase": "connecting", "tasks": 2}
        level, text = said(needed, needed)
        self.assertEqual(level, "error")
        self.assertIn("(connecting); 2 calls", text)
        self.assertEqual(said({**down, "ours": False}, {**down, "ours": False})[0], "warning")

    def test_starved_of_credits(self):
        busy = {"used": 4, "window": 4, "granted": 4, "sending": 9, "pending": 4}
        level, text = said({**busy}, {**busy, "recvs": 95, "sends": 95})
        self.assertEqual(level, "warning")
        self.assertIn("the server grants 4 of 128, and 9 calls wait", text)

    def test_a_full_window_is_no_fault(self):
        busy = {"used": 128, "sending": 9, "pending": 128}
        level, text = said(busy, {**busy, "recvs": 95})
        self.assertEqual(level, "note")
        self.assertIn("more slots or nconnect", text)

    def test_a_connection_made_anew(self):
        level, text = said({}, {"connects": 2,
                                "more": "disconnect: epoch 1, peer dead, after 90 ms\n"})
        self.assertEqual(level, "warning")
        self.assertIn("lost and made anew", text)
        self.assertIn("peer dead", text)

    def test_calls_sent_again(self):
        level, text = said({}, {"calls": 131, "transmissions": 134, "timeouts": 2})
        self.assertEqual(level, "warning")
        self.assertIn("3 calls were sent again and 2 timed out", text)

    def test_odd_messages_are_named(self):
        level, text = said({}, {"counters": "bad_xid: 3\nreminv: 9\n"})
        self.assertEqual(level, "note")
        self.assertIn("bad_xid 3", text)
        self.assertNotIn("reminv", text)


class Latency(unittest.TestCase):
    HEAD = "  below_us       wait     answer\n"

    @staticmethod
    def rows(*counts):
        """Returns the text of a table of 28 rows. The first rows contain these counts, and the
        other rows contain zeros."""
        filled = [*counts, *[(0, 0)] * (28 - len(counts))]
        names = [*(1 << number for number in range(27)), "more"]
        return "".join(f"{name:>10} {wait:>10} {answer:>10}\n"
                       for name, (wait, answer) in zip(names, filled, strict=True))

    def test_the_difference_of_two_tables(self):
        old = status.latency(self.HEAD + self.rows((5, 0)))
        now = status.latency(self.HEAD + self.rows((6, 0), (1, 0), (1, 0), (0, 98), (1, 1), (0, 1)))
        found = status.times(old, now)
        self.assertEqual([found["wait"][name] for name in
                          ("calls", "median_below_us", "p99_below_us", "all_below_us")],
                         [4, 2, 16, 16])
        self.assertEqual([found["answer"][name] for name in
                          ("calls", "median_below_us", "p99_below_us", "all_below_us")],
                         [100, 8, 16, 32])
        self.assertEqual(found["answer"]["buckets"][:6], [0, 0, 0, 98, 1, 1])

    def test_a_stage_without_calls_is_left_out(self):
        same = status.latency(self.HEAD + self.rows((5, 7)))
        self.assertEqual(status.times(same, same), {})
        self.assertEqual(status.latency(""), {})

    def test_the_last_bucket_has_no_limit(self):
        self.assertIsNone(status.below([0] * 27 + [1], 0.5))
        self.assertEqual(status.limit(None), "beyond the last bucket")


class Documented(unittest.TestCase):
    def names(self, found):
        """Yields every name in the output of --json, except those of options and counters."""
        if isinstance(found, dict):
            for name, value in found.items():
                yield name
                if name not in ("options", "counters", "parameters", "statistics"):
                    yield from self.names(value)
        elif isinstance(found, list):
            for value in found:
                yield from self.names(value)

    def test_the_man_page_has_every_name_of_the_json(self):
        page = (REPO / "Documentation/xprtrdma-status.8").read_text().replace("\\", "")
        with tempfile.TemporaryDirectory() as root:
            machine = Machine(root)
            machine.write(f"{status.DEBUGFS}/7/latency",
                          Latency.HEAD + Latency.rows((1, 1)))
            names = set(self.names(status.report(status.Kernel(machine.root), 0)))
        self.assertGreater(len(names), 50)
        absent = {name for name in names if not re.search(rf"\b{name}\b", page)}
        self.assertEqual(absent, set())


class Command(unittest.TestCase):
    def run_on(self, machine, *argv):
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            code = status.main(["--from", str(machine.root), *argv])
        return code, out.getvalue()

    def test_text_json_and_exit_status(self):
        with tempfile.TemporaryDirectory() as root:
            machine = Machine(root)
            machine.write(f"{status.DEBUGFS}/7/latency",
                          Latency.HEAD + Latency.rows((0, 0), (2, 0), (1, 0)))
            code, text = self.run_on(machine)
            self.assertEqual(code, 0)
            self.assertIn("/mnt/a b  192.0.2.1:/srv/mem  NFSv4.2", text)
            self.assertIn("version 1; inline 4096 bytes out, 4096 in; credits 128 asked for, 128 "
                          "granted", text)
            self.assertIn("wait      3 calls: half below 2 us, 99 % below 4 us, all below 4 us",
                          text)
            code, text = self.run_on(machine, "--json")
            self.assertEqual(json.loads(text)["mounts"][0]["level"], "ok")

    def process(self, *argv):
        """Runs the command as a process; returns exit status and output."""
        done = subprocess.run([LOADER.path, *argv], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=60, check=False)
        return done.returncode, done.stdout

    def status_of(self, *argv, **changed):
        with tempfile.TemporaryDirectory() as root:
            Machine(root, **changed)
            return self.process("--from", root, *argv)[0]

    def test_exit_statuses_are_those_of_a_nagios_plugin(self):
        down = {"connected": False, "phase": "connecting", "tasks": 2}
        for wanted, found in (
                (0, self.status_of()),
                # The end of a connection is only reported as a note, so the exit status is 0.
                (0, self.status_of(more="disconnect: epoch 1, idle, after 90 ms\n")),
                # A dead rail (a pair of a local address and an address of the server) is reported
                # as a warning. A mount without a connection is reported as an error.
                (1, self.status_of(more="rail: a (rxe0/1) to b: dead for 1.0 s, 0 connections\n")),
                (2, self.status_of(**down)),
                # It is an error if a mount that was named on the command line does not exist.
                (2, self.status_of("/mnt/absent")),
                (3, self.status_of("--interval", "x")),
                (3, self.status_of("--interval", "-1")),
                (3, self.status_of("--nothing")),
                (3, self.process("--latency", "--interval", "0")[0]),
                (3, self.process("--from", "/nowhere")[0]),
                (3, self.process("--from", "/nowhere", "--prometheus", "-")[0])):
            self.assertEqual(found, wanted)
        with tempfile.TemporaryDirectory() as root:
            machine = Machine(root)
            machine.write(status.MOUNTSTATS, "device tmpfs mounted on /tmp with fstype tmpfs\n")
            self.assertEqual(self.process("--from", root)[0], 3)

    def test_the_man_page_has_the_exit_statuses(self):
        page = (REPO / "Documentation/xprtrdma-status.8").read_text()
        section = " ".join(page.partition(".SH EXIT STATUS")[2].partition(".SH ")[0].split())
        for number, word in (("0", "OK"), ("1", "WARNING"), ("2", "CRITICAL"), ("3", "UNKNOWN")):
            self.assertRegex(section, rf"\.B {number} \({word}\)")

    def test_the_directory_around_a_collection_will_do(self):
        with tempfile.TemporaryDirectory() as root:
            Machine(pathlib.Path(root) / "xprtrdma-status")
            self.assertEqual(self.process("--from", root)[0], 0)


class Prometheus(unittest.TestCase):
    """The output of --prometheus follows the rules of the text format and of `promtool check`."""

    HELP = re.compile(r"# HELP ([a-z][a-z0-9_]*) (\S.*\.)")
    TYPE = re.compile(r"# TYPE ([a-z][a-z0-9_]*) (gauge|counter)")
    LABEL = r'[a-z][a-z0-9_]*="(?:[^"\\\n]|\\[\\"n])*"'
    SAMPLE = re.compile(rf"([a-z][a-z0-9_]*)(?:\{{({LABEL}(?:,{LABEL})*)\}})? (\d+)")

    def samples(self, text):
        """Returns the values in a text of metrics, by (name, labels). Checks that the text follows
        the rules of the format."""
        self.assertTrue(text.endswith("\n"))
        found, families, name = {}, set(), ""
        lines = iter(text[:-1].split("\n"))
        for line in lines:
            if match := self.HELP.fullmatch(line):
                name = match[1]
                self.assertNotIn(name, families, "a family in two pieces")
                families.add(name)
                kind = self.TYPE.fullmatch(next(lines))
                assert kind
                self.assertEqual(kind[1], name)
                self.assertEqual(name.endswith("_total"), kind[2] == "counter", name)
                self.assertNotRegex(name, "gauge|counter|_(ms|us|kib|mib)(_|$)")
                continue
            sample = self.SAMPLE.fullmatch(line)
            assert sample, line
            self.assertEqual(sample[1], name, "a sample outside of its family")
            self.assertNotIn((name, sample[2]), found, "a sample twice")
            found[name, sample[2]] = int(sample[3])
        return found

    def written(self, **changed):
        with tempfile.TemporaryDirectory() as root:
            machine = Machine(root, **changed)
            machine.link("proc/self/ns/net", "net:[4026531840]")
            return self.samples(status.exposition(status.Kernel(machine.root), 0))

    LABELS = 'server="192.0.2.1:20049",xprt="7",netns="4026531840"'

    def test_a_mount_and_its_connection(self):
        found = self.written(used=3, pending=2, counters="bad_xid: 3\nerr_vers: 0\nmrs_in_use: 4\n",
                             more='rail: a (rxe0/1) to b: live for 9.0 s, 1 connections, this one\n'
                                  'rail: c (rxe1/1) to d: dead for 9.0 s, 0 connections\n')
        for name, value in (("connected", 1), ("credits_used", 3), ("credits", 128),
                            ("calls_sent_total", 89), ("connects_total", 1),
                            ("regions_in_use", 4), ("failed_attempts", 0)):
            self.assertEqual(found[f"xprtrdma_{name}", self.LABELS], value, name)
        for name, more, value in (("waiting_calls", 'queue="for_reply"', 2),
                                  ("events_total", 'event="bad_xid"', 3),
                                  # A counter is shown even if its event has never occurred.
                                  ("events_total", 'event="err_vers"', 0),
                                  ("rail_live", 'rail="a (rxe0/1) to b"', 1),
                                  ("rail_live", 'rail="c (rxe1/1) to d"', 0)):
            self.assertEqual(found[f"xprtrdma_{name}", f"{self.LABELS},{more}"], value, more)
        self.assertEqual(found["xprtrdma_mounts", None], 1)
        self.assertEqual(found["xprtrdma_mount_level",
                               'mount="/mnt/a b",source="192.0.2.1:/srv/mem"'], 2)

    def test_the_in_tree_client_has_fewer(self):
        found = self.written(ours=False)
        self.assertEqual(found["xprtrdma_connected", self.LABELS], 1)
        self.assertFalse([name for name, _ in found if "events" in name])

    def test_a_connection_that_two_mounts_share_is_told_once(self):
        with tempfile.TemporaryDirectory() as root:
            machine = Machine(root)
            second = MOUNT.format(**NUMBERS).replace("a\\040b", "second")
            machine.write(status.MOUNTSTATS, MOUNT.format(**NUMBERS) + second)
            info = machine.root / status.MOUNTINFO
            line = info.read_text()
            info.write_text(line + line.replace("a\\040b", "second"))
            found = self.samples(status.exposition(status.Kernel(machine.root), 0))
        self.assertEqual(found["xprtrdma_mounts", None], 2)
        self.assertEqual(len([name for name, _ in found if name == "xprtrdma_connected"]), 1)

    def test_labels_are_escaped(self):
        metrics = status.Metrics()
        metrics.add("gauge", "odd", "Odd.", 1, mount='a"b\\c\nd')
        self.assertEqual(self.samples(str(metrics)),
                         {("xprtrdma_odd", r'mount="a\"b\\c\nd"'): 1})

    def test_a_file_is_replaced_at_once(self):
        with tempfile.TemporaryDirectory() as root:
            machine, file = Machine(root), pathlib.Path(root) / "xprtrdma.prom"
            for _ in range(2):
                self.assertEqual(status.main(["--from", root, "--prometheus", str(file)]), 0)
                self.samples(file.read_text())
                self.assertEqual(file.stat().st_mode & 0o777, 0o644)
            self.assertEqual([path.name for path in machine.root.iterdir() if path.is_file()],
                             [file.name])
            with self.assertRaises(status.StatusError):
                status.main(["--from", root, "--prometheus", f"{root}/nowhere/x.prom"])

    def test_the_example_of_a_unit_gives_options_that_there_are(self):
        unit = (REPO / "tools/packaging/xprtrdma-status.service").read_text()
        line = re.search(r"^ExecStart=(.*)$", unit, re.MULTILINE)
        assert line
        command, *argv = line[1].split()
        self.assertEqual(pathlib.Path(command).name, "xprtrdma-status")
        self.assertEqual(pathlib.Path(status.arguments(argv).prometheus).suffix, ".prom")

    def test_the_man_page_has_every_metric(self):
        page = (REPO / "Documentation/xprtrdma-status.8").read_text()
        names = {name for name, _ in self.written(
            counters="mrs_in_use: 4\nreminv: 1\n",
            more="rail: a (rxe0/1) to b: live for 9.0 s, 1 connections, this one\n")}
        self.assertGreater(len(names), 15)
        self.assertEqual({name for name in names if name.removeprefix("xprtrdma_") not in page},
                         set())
