# SPDX-License-Identifier: GPL-2.0
"""Commands inside the root file system. Each command runs in new namespaces.

The mounts are in a private mount namespace, and the processes in a private PID namespace. The
mounts and the processes disappear when the command ends, even if it is killed.
"""

import os
import shlex

SETUP = """
set -eu
mount --make-rprivate /
mount -t proc proc "$ROOT/proc"
mount --rbind /sys "$ROOT/sys"
mount --rbind /dev "$ROOT/dev"
mount -t tmpfs -o mode=755 lab "$ROOT/run"
mount -t tmpfs -o mode=1777 lab "$ROOT/tmp"
if [ -e /etc/resolv.conf ]; then
    [ -e "$ROOT/etc/resolv.conf" ] || : > "$ROOT/etc/resolv.conf"
    mount --bind "$(readlink -f /etc/resolv.conf)" "$ROOT/etc/resolv.conf"
fi
# Programs inside the root trust the same certificate authorities as this machine.
certificates=/etc/ssl/certs/ca-certificates.crt
if [ -e "$certificates" ] && [ -e "$ROOT$certificates" ]; then
    mount --bind "$(readlink -f "$certificates")" "$ROOT$certificates"
fi
"""
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def command(root, argv, binds=(), cwd="/", env=None):
    """Returns the argument list that runs `argv` inside `root`.

    Each path in `binds` is visible inside `root` under the same name. If an entry of `binds` is a
    pair (outside, inside), the path `outside` is visible under the name `inside`.
    """
    script = [f"ROOT={shlex.quote(str(root))}", SETUP]
    for bind in binds:
        outside, inside = bind if isinstance(bind, tuple) else (bind, bind)
        source, target = shlex.quote(str(outside)), shlex.quote(f"{root}{inside}")
        script.append(f"mkdir -p {target}; mount --bind {source} {target}")
    variables = {"PATH": PATH, "HOME": "/root", "LC_ALL": "C.UTF-8",
                 "DEBIAN_FRONTEND": "noninteractive"}
    for name in ("http_proxy", "https_proxy", "no_proxy", "TERM"):
        if name in os.environ:
            variables[name] = os.environ[name]
    variables.update(env or {})
    settings = [f"{name}={value}" for name, value in variables.items()]
    inner = ["env", "-i", *settings, "chroot", str(root), "sh", "-c",
             'cd "$1" && shift && exec "$@"', "sh", str(cwd), *map(str, argv)]
    script.append(f"exec {shlex.join(inner)}")
    return ["unshare", "--mount", "--pid", "--fork", "--kill-child=KILL", "--",
            "sh", "-c", "\n".join(script)]
