#!/usr/bin/env bash
# Runs shell commands in a small virtual machine with an RDMA device: the kernel's soft-RoCE driver (rdma_rxe) under
# Debian's kernel, in qemu. For machines without such a device, or without a kernel that supports one.
#
#   soft_roce_vm.sh [--with PROGRAM]... [--memory MB] [--seconds N] COMMANDS
#
# COMMANDS are for busybox's sh. The device is rxe0, its addresses are 10.0.0.1 and 10.0.0.2. PROGRAM is a path, or a
# name on PATH; it is available under its own name, with the libraries that it needs. With //tools:soft_roce_vm, Cell's
# own programs are available, too.
#
# The exit status is that of COMMANDS; 124 if they took longer than --seconds; 77 if this machine cannot run it, in
# which case a line on standard error says why. Everything is emulated: a program runs 10 to 50 times slower. The first
# call fetches Debian's kernel (70 MB) and keeps it unpacked in ~/.cache/cell-soft-roce-vm.
set -euo pipefail
PATH=$PATH:/usr/sbin:/sbin

unable() {
  echo "soft_roce_vm: skipped: $*" >&2
  exit 77
}

programs=() memory=2048 seconds=300
runfiles=${RUNFILES_DIR:-${BASH_SOURCE[0]}.runfiles}/cell  # Bazel's.
for program in tools/cell_bench tools/cellctl cell/cmd/cell_server; do
  if [[ -x $runfiles/$program ]]; then programs+=("$runfiles/$program"); fi
done
while (($# > 1)); do
  case $1 in
    --with) programs+=("$2") ;;
    --memory) memory=$2 ;;
    --seconds) seconds=$2 ;;
    *) echo "soft_roce_vm: no such flag: $1" >&2; exit 2 ;;
  esac
  shift 2
done
if (($# != 1)) || [[ $1 == --help ]]; then
  sed -n '2,/^set /p' "${BASH_SOURCE[0]}" | sed 's/^# \{0,1\}//; /^set /d'
  (($# == 1)); exit
fi
commands=$1

for needed in qemu-system-x86_64 busybox cpio depmod rdma dpkg apt-get; do
  command -v "$needed" >/dev/null || unable "there is no $needed (apt-get install qemu-system-x86 busybox-static cpio kmod iproute2)"
done
provider=$(find /usr/lib -path '*/libibverbs/librxe-*.so' 2>/dev/null | head -1)
[[ -n $provider ]] || unable "there is no soft-RoCE provider (apt-get install ibverbs-providers)"

# Unpack the kernel without installing it.
home=${HOME:-$(getent passwd "$(id -u)" | cut -d: -f6)}
cache=${XDG_CACHE_HOME:-$home/.cache}/cell-soft-roce-vm
mkdir -p "$cache" || unable "cannot write $cache"
newest() { apt-cache depends linux-image-amd64 2>/dev/null | sed -n 's/.*Depends: //p' | head -1; }  # linux-image-6.1.0-N-amd64
update() { ((EUID == 0)) && apt-get update -qq >/dev/null 2>&1; }
package=$(newest)
[[ -n $package ]] || { update && package=$(newest); } || true
[[ -n $package ]] || unable "apt knows no linux-image-amd64"
release=${package#linux-image-}
kernel=$cache/$release
(
  flock 9
  if [[ ! -e $kernel/complete ]]; then
    fresh=$(mktemp -d -p "$cache")
    chmod 755 "$fresh"
    cd "$fresh"
    fetch() { apt-get download -qq "$package" >/dev/null 2>&1; }
    fetch || { update && fetch; } || unable "cannot fetch $package"
    dpkg -x "$package"_*.deb root
    depmod -b "$fresh/root" "$release"
    touch "$fresh/root/complete"
    rm -rf "$kernel"
    mv "$fresh/root" "$kernel"
    rm -rf "$fresh"
  fi
) 9>"$cache/lock"

# Make the machine's file system.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/root
mkdir -p "$root"/{bin,sbin,proc,sys,dev,tmp,run,var/run,etc/libibverbs.d}
cp "$(command -v busybox)" "$root/bin/busybox"
ln -s busybox "$root/bin/sh"
add() {  # A file, at its place or at another, and the shared libraries that it needs.
  local to=$root${2:-$1}
  mkdir -p "$(dirname "$to")"
  cp -L "$1" "$to"
  { ldd "$1" 2>/dev/null | grep -o '/[^ ]*' || true; } | while read -r library; do
    mkdir -p "$root$(dirname "$library")"
    cp -nL "$library" "$root$library"
  done
}
for program in rdma ip "${programs[@]}"; do
  path=$(readlink -f "$(command -v "$program")") || { echo "soft_roce_vm: no such program: $program" >&2; exit 2; }
  add "$path" "/bin/$(basename "$program")"
done
add "$provider"
add "$(dirname "$(dirname "$provider")")/libgcc_s.so.1"  # pthread_exit loads it.
cp /etc/libibverbs.d/rxe.driver "$root/etc/libibverbs.d/"
printf '127.0.0.1 localhost\n' >"$root/etc/hosts"
printf 'root:x:0:0:root:/tmp:/bin/sh\n' >"$root/etc/passwd"
for module in rdma_rxe ib_uverbs rdma_ucm dummy crc32_generic; do  # rxe asks for crc32 by name at run time.
  modprobe -S "$release" -d "$kernel" --show-depends "$module" | awk '/insmod/{print $2}'
done | sort -u | while read -r file; do
  to=$root${file#"$kernel"}
  mkdir -p "$(dirname "$to")"
  cp "$file" "$to"
done
cp "$kernel/lib/modules/$release"/modules.{builtin*,order} "$root/lib/modules/$release/"
depmod -b "$root" "$release"
printf '%s\n' "$commands" >"$root/commands"
cat >"$root/init" <<'INIT'
#!/bin/busybox sh
/bin/busybox --install -s /sbin
export PATH=/bin:/sbin:/usr/bin:/usr/sbin HOME=/tmp
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mkdir -p /dev/shm
mount -t tmpfs shm /dev/shm
mount -t tmpfs tmp /tmp
modprobe -a crc32_generic dummy rdma_rxe ib_uverbs rdma_ucm
ip link set lo up
ip link add dummy0 type dummy 2>/dev/null
ip address add 10.0.0.1/24 dev dummy0
ip address add 10.0.0.2/24 dev dummy0
ip link set dummy0 up mtu 4200
rdma link add rxe0 type rxe netdev dummy0
echo SOFT-ROCE-BEGIN
sh /commands
echo "SOFT-ROCE-EXIT $?"
poweroff -f
INIT
chmod +x "$root/init"
(cd "$root" && find . | cpio -o -H newc -R +0:+0 --quiet | gzip -1) >"$work/initrd.gz"

accelerator=tcg,thread=multi cpu=max
# KVM is not used, even if there is /dev/kvm: inside a virtual machine it often exists and does not work.
mkfifo "$work/silence"  # The console's input: at /dev/null's end, qemu would read again and again.
timeout "$seconds" qemu-system-x86_64 -M q35 -accel "$accelerator" -cpu "$cpu" -smp 2 -m "$memory" -nographic -no-reboot \
  -kernel "$kernel/boot/vmlinuz-$release" -initrd "$work/initrd.gz" -append "console=ttyS0 quiet panic=-1 tsc=reliable" 0<>"$work/silence" |
  tr -d '\r' | tee "$work/log" | sed -un '/SOFT-ROCE-BEGIN/,/SOFT-ROCE-EXIT/{/SOFT-ROCE-/d;p}' || true
status=$(sed -n 's/.*SOFT-ROCE-EXIT \([0-9]*\).*/\1/p' "$work/log" | tail -1)
if [[ -z $status ]]; then
  grep -q SOFT-ROCE-BEGIN "$work/log" || { tail -20 "$work/log" >&2; unable "the virtual machine did not start"; }
  echo "soft_roce_vm: not done after $seconds s" >&2
  exit 124
fi
exit "$status"
