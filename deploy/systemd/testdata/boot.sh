# The first process of the machine's namespaces: makes the machine's files in the folder $1 and
# becomes its systemd. What is changed there is in memory, and gone with it.
set -e
mount -t tmpfs tmpfs "$1"
mkdir "$1/upper" "$1/work" "$1/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" "$1/root"
cd "$1/root"
mount -t proc proc proc
mount --bind proc/sys proc/sys
mount -o remount,bind,ro proc/sys # some of these are the kernel's, not the namespaces'
mount -t sysfs -o ro sysfs sys
for dir in run tmp dev; do mount -t tmpfs tmpfs "$dir"; done
for node in null zero full random urandom tty; do
  touch "dev/$node"
  mount --bind "/dev/$node" "dev/$node"
done
mkdir dev/pts dev/shm
mount -t devpts -o newinstance,ptmxmode=0666 devpts dev/pts
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
if [ -e /sys/fs/cgroup/cgroup.controllers ]; then
  mount -t cgroup2 cgroup2 sys/fs/cgroup
else # version 1; systemd brings what it wants besides
  mount -t tmpfs tmpfs sys/fs/cgroup
  mkdir sys/fs/cgroup/memory sys/fs/cgroup/pids sys/fs/cgroup/unified
  mount -t cgroup -o memory cgroup sys/fs/cgroup/memory
  mount -t cgroup -o pids cgroup sys/fs/cgroup/pids
  mount -t cgroup2 cgroup2 sys/fs/cgroup/unified
fi
# No service of the machine that tests is started here, and it is another machine than that.
rm -rf etc/systemd/system/*.wants etc/machine-id
echo 5b111a0e0000400080000000000000aa >etc/machine-id
mkdir -p home/user .outside
mount --bind "$2" home/user
pivot_root . .outside
cd /
umount -l .outside
rmdir .outside
exec env -i container=test PATH=/usr/sbin:/usr/bin:/sbin:/bin /lib/systemd/systemd --unit=multi-user.target
