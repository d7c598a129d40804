"""Has helpers that keep cores busy which the baseline does not have, and take them again and again."""

import os
import subprocess
import sys

import server
from model import Model

HELPER = """
import os
while True:
    os.sched_setaffinity(0, range(os.cpu_count()))
    sum(range(1000))
"""

for _ in range(2):
    subprocess.Popen([sys.executable, "-c", HELPER])
os.sched_setaffinity(0, range(os.cpu_count()))
server.main(Model)
