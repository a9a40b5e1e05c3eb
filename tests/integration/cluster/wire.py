"""The network between hosts that are namespaces: a process that carries the packets of a TUN device in each, and delays,
loses and withholds them as it is told. The kernel's own netem does the same where it is built in, which is not everywhere.

Arguments: for each host the id of a process in its namespaces. Host n gets the address 10.83.0.n, n from 1. Prints "ready", and
then obeys lines of JSON: {"delay": seconds each way, "loss": share of packets, "cut": [n, ...]}.
"""

from __future__ import annotations

import fcntl
import heapq
import json
import os
import random
import select
import struct
import subprocess
import sys
import time

import places

TUNSETIFF = 0x400454CA
IFF_TUN_NO_PACKET_INFO = 0x1001
MTU = 1500


def open_device(number: int) -> int:
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH22x", b"wire", IFF_TUN_NO_PACKET_INFO))
    for words in (f"addr add {places.address(number)}/24 dev wire", f"link set wire up mtu {MTU}"):
        subprocess.run(["ip", *words.split()], check=True)
    return device


class Wire:
    def __init__(self, pids: list[int]) -> None:
        self.devices: dict[int, int] = {}
        for number, pid in enumerate(pids, 1):
            places.enter(pid)
            self.devices[number] = open_device(number)
        self.numbers = {device: number for number, device in self.devices.items()}
        self.delay = 0.0
        self.loss = 0.0
        self.cut: set[int] = set()
        self.random = random.Random(1)
        self.under_way: list[tuple[float, int, int, bytes]] = []
        self.sent = 0

    def obey(self, line: str) -> None:
        told = json.loads(line)
        self.delay, self.loss, self.cut = told["delay"], told["loss"], set(told["cut"])

    def take(self, device: int) -> None:
        packet = os.read(device, MTU + 100)
        if packet[0] >> 4 != 4:  # what IPv6 says by itself
            return
        source, to = self.numbers[device], packet[19]
        lost = self.random.random() < self.loss
        if to not in self.devices or lost or {source, to} & self.cut:
            return
        self.sent += 1
        heapq.heappush(self.under_way, (time.monotonic() + self.delay, self.sent, to, packet))

    def deliver(self) -> None:
        while self.under_way and self.under_way[0][0] <= time.monotonic():
            _, _, to, packet = heapq.heappop(self.under_way)
            try:
                os.write(self.devices[to], packet)
            except OSError:
                pass  # lost: TCP sends it again

    def run(self) -> None:
        poll = select.poll()
        for device in (0, *self.numbers):
            poll.register(device, select.POLLIN)
        print("ready", flush=True)
        while True:
            wait = max(0.0, self.under_way[0][0] - time.monotonic()) * 1000 if self.under_way else None
            for device, _ in poll.poll(wait):
                if device == 0:
                    line = sys.stdin.readline()
                    if not line:
                        return
                    self.obey(line)
                else:
                    self.take(device)
            self.deliver()


if __name__ == "__main__":
    Wire([int(pid) for pid in sys.argv[1:]]).run()
