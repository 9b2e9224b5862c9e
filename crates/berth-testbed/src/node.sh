# The first process of the real node's namespaces: makes its own /var/lib, /var/log and /run, starts containerd and
# kubelet, and ends when one of them has. Runs in the node's folder; $1 names the folder of the programs.
set -eu
programs=$1

# What is written there stays in the node's folder. Paths are relative, because a comma or a colon in the folder's name
# would mean something to mount.
for place in var/lib var/log run; do
    mkdir -p "over/$place/new" "over/$place/work"
    mount -t overlay -o "lowerdir=/$place,upperdir=over/$place/new,workdir=over/$place/work" overlay "/$place"
done

# Empty, whatever the machine has there: this node must not take the containers of another kubelet for its own.
for place in var/lib/kubelet var/lib/cni var/lib/containerd var/log/pods var/log/containers run/containerd run/netns; do
    mkdir -p "own/$place" "/$place"
    mount --bind "own/$place" "/$place"
done

# kubelet and the plugins of the network want these values; the machine keeps its own.
mkdir -p sysctl
while read -r name value; do
    [ -e "/proc/sys/$name" ] || continue
    fake="sysctl/$(echo "$name" | tr / .)"
    echo "$value" >"$fake"
    mount --bind "$fake" "/proc/sys/$name"
done <<END
vm/overcommit_memory 1
vm/panic_on_oom 0
kernel/panic 10
kernel/panic_on_oops 1
kernel/keys/root_maxkeys 1000000
kernel/keys/root_maxbytes 25000000
net/ipv4/ip_forward 1
END

# Containers share what is mounted here afterwards; nothing of it reaches the machine.
mount --make-rshared /

# containerd finds its shim there.
export PATH="$programs:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"$programs/containerd" --config containerd.toml >>../containerd.log 2>&1 &
containerd=$!
while ! [ -S /run/containerd/containerd.sock ]; do
    kill -0 $containerd || exit 1
    sleep 0.05
done
"$programs/kubelet" --config=kubelet.json --kubeconfig=kubeconfig --hostname-override=localhost --v=1 >>../kubelet.log 2>&1 &
kubelet=$!

# Processes whose parents are gone become children of this one, and are waited for while it waits for the sleep.
while kill -0 $containerd 2>/dev/null && kill -0 $kubelet 2>/dev/null; do
    sleep 1
done
echo "containerd or kubelet has ended: see containerd.log and kubelet.log"
exit 1
