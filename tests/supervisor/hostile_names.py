"""Names with which somebody would have more, or something else, acted upon than one host."""

from __future__ import annotations

import string
from typing import Final

_CHARACTERS: Final = [chr(n) for n in (*range(32), 127)] + [
    each for each in f" {string.punctuation}" if each not in "._-"
]
KEYWORDS: Final = [
    each
    for word in ("all", "any", "default", "localhost", "none", "null", "self")
    for each in (word, word.upper(), word.title(), word[0] + word[1:].upper())
]
SETS: Final = [
    "n[1-9]", "n[1-3]", "n[1,3]", "n[01-03]", "n[1-2]x", "[1-3]", "n[", "n]", "n1,n2", "n1,ALL",
    "ALL,n1", "n1 n2", "n{1,2}", "{1..3}", "n*", "n?", "n.*", ".*", "^n1$", "n1|n2", "!n4", "~n4",
    "@gpus", "@*", "gpus&a100", "[gpus*2]", "gres:gpu", "gpus=2", "%n", "%%", "n%2C", "n1%00",
    "NodeName=n1", "NodeName=a,b", "NodeName=ALL", "nodes=ALL", "n1 State=DOWN", "n1,State=DOWN",
    "Reason=x", "n1=n2", "{gpus}", "spec.nodeName!=n1", "n1,metadata.name=n2", "a in (n1,n2)",
]  # fmt: skip
ARGUMENTS: Final = [
    "-n1", "--n1", "--all", "--", "-", "-rf", "-o/etc/x", "--kubeconfig=/x", "+n1", "$(reboot)",
    "`reboot`", "${IFS}", "n1;reboot", "n1&&reboot", "n1|reboot", "n1>x", "<n1", "n1\\", "'n1'",
    '"n1"', "n1#", "{host}", "{run_id}", "%(host)s", "{0.__class__}", "\x1b[2Jn1", "n1\x9b2J",
]  # fmt: skip
PATHS: Final = [
    "..", ".", "../n2", "n1/..", "n1/../n2", "/n1", "n1/n2", "n1/status", "n1?dryRun=All",
    "n1%2f..", "//n1", "n1/", "file:n1", "http://n1", "n1:6817", "[::1]", "user@n1", ".n1", "n1.",
    "n1..", "_n1", "n1_", "n1-",
]  # fmt: skip
LOOK_ALIKES: Final = [
    "\uff4e\uff11", "n\uff11", "\u05781", "\u043f1", "n\u00b9", "n\u2460", "n\u0661", "n\u200b1",
    "n1\u200d", "\u202en1", "\ufeffn1", "n\u00ad1", "n1\u3002x", "n1\uff0ex", "\u0410LL",
    "\uff21\uff2c\uff2c", "al\u0142", "ALL\u0301", "\u2010n1", "n\u20111", "n1\u00a0", "n\u00df",
    "\u0130", "\u0131", "\ufb00", "n\u20241", "n1\uff0cn2", "\uff3b1-3\uff3d", "n1\u2028n2",
    "\ud800", "\U000e0041n1", "\N{LATIN SMALL LETTER N WITH TILDE}1",
]  # fmt: skip
LENGTHS: Final = ["", " ", "x" * 254, "n1" * 32_768, "n1," * 20_000, "\0" * 256]
MALFORMED: Final = {
    "keywords": KEYWORDS,
    "sets": SETS,
    "arguments": ARGUMENTS,
    "paths": PATHS,
    "look-alikes": LOOK_ALIKES,
    "lengths": LENGTHS,
    "characters": [text for c in _CHARACTERS for text in (f"{c}n1", f"n{c}1", f"n1{c}")],
}
"""No scheduler has a host of such a name; refused without asking any."""
UNLISTED: Final = [
    "N1", "n01", "n11", "n4", "n", "1", "n1.cluster", "n1.cluster.local", "N1.CLUSTER", "n1-n3",
    "n1-3", "n1..n3", "n1.n2", "n1_n2", "n1x", "xn1", "gpus", "GPUS", "Gpus", "cluster", "nodes",
    "node", "batch", "of-n1", "127.0.0.1", "10.0.0.1", "0.0.0.0", "n1--all", "all-nodes",
    "localhost.localdomain", "idle", "drain", "NodeName", "x" * 253,
]  # fmt: skip
"""A scheduler finds something for some of them, but has no host of exactly this name: the machine
behind a node, a set of nodes, another case."""
RUNS: Final = [
    "", "ALL", "all", "*", "slurm-ALL", "slurm-7,8", "slurm-7_[0-9]", "slurm-7_*", "slurm-[1-9]",
    "slurm-7 8", "slurm-0", "slurm-07", "slurm--7", "slurm-+7", "slurm-0x7", "slurm-7.0",
    "slurm-7e1", "slurm-\u0667", "slurm-\uff17", "slurm-7\n", "slurm-7\0", "slurm-" + "7" * 11,
    "slurm-" + "9" * 65_536, "a,b=c", "llama)", "llama in (a)", "!llama", "llama,other",
    "llama=other", "../llama", "-llama", "--all", "llama.", "$(id)", "lla ma", "llama\n",
    "\u043blama", "x" * 64, "llama,straggler/run!=x", "llama%2Cother",
]  # fmt: skip
"""Names of runs that name several jobs or pods, or nothing."""
