# How a virtual machine is made and run: kernel, first file system, QEMU. Source this file.

# The modules of a disk, in the order in which they are inserted.
disk_modules=(drivers/virtio/virtio_ring drivers/virtio/virtio drivers/virtio/virtio_pci_legacy_dev drivers/virtio/virtio_pci_modern_dev
  drivers/virtio/virtio_pci drivers/block/virtio_blk)

# Prints the path of Debian's kernel for clouds, which is downloaded once.
debian_kernel() { # directory
  local package
  if ! compgen -G "$1/kernel/boot/vmlinuz-*" >/dev/null; then
    apt-cache show linux-image-cloud-amd64 >/dev/null 2>&1 || apt-get update -qq
    package=$(apt-cache depends linux-image-cloud-amd64 | awk '/Depends: linux-image/ { print $2; exit }')
    (cd "$1" && apt-get download -qq "$package" 2>/dev/null && dpkg -x "$package"_*.deb kernel) >&2 || return 1
  fi
  compgen -G "$1/kernel/boot/vmlinuz-*" | tail -n 1
}

# Copies programs of this machine, with their libraries, and the modules of a disk.
initrd_with() { # directory, directory of modules, programs
  local root=$1 modules=$2 program path library module
  shift 2
  mkdir -p "$root"/{proc,sys,dev,disk,usr/bin,usr/sbin,usr/lib,usr/lib64,usr/lib/modules}
  for path in bin sbin lib lib64; do ln -s "usr/$path" "$root/$path"; done
  for program; do
    path=$(type -P "$program") || { echo "$program is not installed" >&2 && return 1; }
    cp --dereference "$(realpath "$path")" "$root/usr/bin/$program"
    for library in $(ldd "$path" 2>/dev/null | grep --only-matching --extended-regexp '/[^ ]+\.so[^ ]*'); do
      mkdir -p "$root$(dirname "$library")"
      cp --dereference "$library" "$root$library"
    done
  done
  for module in "${disk_modules[@]}"; do cp "$modules/$module.ko" "$root/usr/lib/modules/"; done
}

pack_initrd() { # directory, file
  (cd "$1" && find . -print0 | cpio --null --create --format=newc --quiet) >"$2"
}

# Runs a machine to its end and prints the lines of its guest. It fails if the guest does not come to its end, or if a check fails.
run_machine() { # log, seconds, kernel, first file system, more words for the kernel, more arguments of QEMU
  local log=$1 seconds=$2 kernel=$3 initrd=$4 words=$5 summary
  shift 5
  timeout "$seconds" qemu-system-x86_64 -kernel "$kernel" -initrd "$initrd" -m 4096 -smp 2 -nographic -no-reboot -net none \
    -append "console=ttyS0 panic=-1 quiet $words" "$@" </dev/null | stdbuf --output=L tr -d '\r' | tee "$log" |
    grep --line-buffered --only-matching 'guest: .*' || true
  summary=$(grep --only-matching 'guest: .* passed, .*' "$log" | tail -n 1) || true
  if [[ -z $summary ]]; then
    echo "the guest did not come to its end" >&2
    tail -n 40 "$log" >&2
    return 1
  fi
  [[ $summary == *" 0 failed" ]]
}
