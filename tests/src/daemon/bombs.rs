//! Commands that use up a resource of their sandbox. Each ends by itself or at a limit.

/// The name and the command of each bomb.
pub const BOMBS: [(&str, &str); 8] = [
    ("fork", ":(){ :|:& };: ; wait"),
    ("memory", "python3 -c 'x=[]\nwhile True: x.append(bytearray(1<<20))'"),
    ("disk", "dd if=/dev/zero of=/workspace/big bs=1M; cat /dev/zero > /tmp/big; true"),
    ("inode", "cd /tmp && i=0; while :; do : > f$i || break; i=$((i+1)); done"),
    ("output", "timeout 4 yes"),
    ("cpu", "for i in 1 2 3 4; do (while :; do :; done) & done; sleep 4; kill $(jobs -p)"),
    (
        "open files",
        "python3 -c 'import os\nx=[]\ntry:\n  while True: x.append(os.open(\"/dev/null\", 0))\nexcept OSError as e: print(len(x) > 1000, e.errno)'",
    ),
    (
        "zombie",
        "python3 -c 'import os,time\nn=0\ntry:\n  while True:\n    if os.fork()==0: os._exit(0)\n    n+=1\nexcept OSError: print(n)\ntime.sleep(1)'",
    ),
];
