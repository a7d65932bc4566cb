"""Replay a stream with one libcachesim policy, by its fastest path: the compiled loop over a
memory-mapped binary trace (or over text, one id a line, if the name ends in .txt).

    python tools/peers/libcachesim_replay.py ids.u32 LOOKUPS POLICY CAPACITY HASHPOWER

Prints the hits and the seconds of the loop alone as JSON. Nothing but libcachesim is imported:
replay_speed.py measures this process.
"""

import json
import sys
import time

import libcachesim

PEERS = {
    "lru": libcachesim.LRU,
    "fifo": libcachesim.FIFO,
    "lfu": libcachesim.LFU,
    "s3fifo": libcachesim.S3FIFO,
    "sieve": libcachesim.Sieve,
    "arc": libcachesim.ARC,
    "gdsf": libcachesim.GDSF,
}


def main():
    path, lookups, policy, capacity, hashpower = sys.argv[1:]
    if path.endswith(".txt"):
        kind, fields = libcachesim.TraceType.PLAIN_TXT_TRACE, libcachesim.ReaderInitParam()
    else:
        kind, fields = libcachesim.TraceType.BIN_TRACE, libcachesim.ReaderInitParam("<I")
        fields.obj_id_field = 1
    reader = libcachesim.TraceReader(path, kind, fields)
    cache = PEERS[policy](int(capacity), hashpower=int(hashpower))
    start = time.perf_counter()
    miss_ratio, _ = cache.process_trace(reader)
    seconds = time.perf_counter() - start
    print(json.dumps({"hits": round(int(lookups) * (1 - miss_ratio)), "loop_s": seconds}))


if __name__ == "__main__":
    main()
