#!/bin/busybox sh
# The first process of the emulated machine. It takes the steps that the kernel's command line names
# (steps=mount,survey,...) and says over the serial line what each command printed:
#
#   @@ begin NAME
#   ...
#   @@ end NAME STATUS
#
# Nothing is judged here: the host reads the lines and knows what they should be. It also gives
# records= (of one load), keys= (of one cut), from= (the first operation of a cut).

/bin/busybox mkdir -p /proc /sys /dev /tmp /pm /usr/bin /usr/sbin
/bin/busybox --install -s /bin
export PATH=/bin:/sbin:/usr/bin:/usr/sbin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
ifconfig lo 127.0.0.1 up

section() {
    name=$1
    shift
    echo "@@ begin $name"
    # A file, not the terminal: nobody here watches a bar of progress.
    "$@" >"/tmp/$name" 2>&1
    status=$?
    cat "/tmp/$name"
    [ -z "$(tail -c 1 "/tmp/$name")" ] || echo
    echo "@@ end $name $status"
}

# The NVDIMM of node 0 becomes a block device for direct access, that of node 3 a device of its own.
# Both are raw at first; what is written here stays in the images.
format() {
    nd=/sys/bus/nd
    file=$(region_of 0)
    device=$(region_of 3)
    echo "namespace$file.0" >$nd/drivers/nd_pmem/unbind
    claim "pfn$file.0" "namespace$file.0" 00000000-0000-4000-8000-000000000001
    echo "pfn$file.0" >$nd/drivers/nd_pmem/bind
    echo "namespace$device.0" >$nd/drivers/nd_pmem/unbind
    claim "dax$device.0" "namespace$device.0" 00000000-0000-4000-8000-000000000002
    echo "dax$device.0" >$nd/drivers/dax_pmem/bind
    mkfs.ext4 -q -b 4096 -E lazy_itable_init=1 "/dev/pmem$file"
}

# The number of the region that belongs to a node: the firmware lists them in no order.
region_of() {
    for region in /sys/bus/nd/devices/region?; do
        [ "$(cat "$region/target_node")" = "$1" ] && echo "${region##*region}"
    done
}

claim() {
    settings=/sys/bus/nd/devices/$1
    echo ram >"$settings/mode" && echo 2097152 >"$settings/align" &&
        echo "$3" >"$settings/uuid" && echo "$2" >"$settings/namespace"
}

mount_direct() {
    mount -t ext4 -o dax=always /dev/pmem? /pm && grep ' /pm ' /proc/self/mountinfo
}

# The second NVDIMM as ordinary memory of a node of its own.
give_to_kernel() {
    echo online_movable >/sys/devices/system/memory/auto_online_blocks
    echo "dax$(region_of 3).0" >/sys/bus/dax/drivers/device_dax/unbind
    echo "dax$(region_of 3).0" >/sys/bus/dax/drivers/kmem/new_id
    cat /sys/devices/system/node/online
}

survey() {
    section topology terrace topology --json
    section topology-table terrace topology
    if terrace doctor --help >/dev/null 2>&1; then
        section doctor terrace doctor --json
        section doctor-table terrace doctor
    fi
}

# What a server says of its medium and its tiers, or why it does not come up.
serve_and_stop() {
    terrace serve "$@" --port 0 >/tmp/said 2>&1 &
    server=$!
    until grep -q '^listening' /tmp/said || ! kill -0 $server 2>/dev/null; do sleep 0.1; done
    kill -TERM $server 2>/dev/null
    wait $server
    status=$?
    cat /tmp/said
    return $status
}

tiers() {
    section tiers-found serve_and_stop /tmp/tiers --tier name=near,kind=dram,node=0 \
        --tier name=fast,kind=node,node=1,bytes=64MiB --tier name=slow,kind=node,node=2 \
        --tier name=given,kind=node,node=3 --tier name=kept,kind=dax,path=/pm
    section tier-too-large serve_and_stop /tmp/tiers --tier name=fast,kind=node,node=1,bytes=64GiB
    section tier-unknown serve_and_stop /tmp/tiers --tier name=fast,kind=node,node=9
    section tier-too-strong serve_and_stop /tmp/tiers --tier name=kept,kind=dax,path=/pm,domain=eadr
    section medium-adr serve_and_stop /pm/tiers --domain adr
    section medium-eadr serve_and_stop /pm/tiers --domain eadr
}

nodes() {
    for node in 0 1 2 3; do
        section "bound-$node" node_budget $node 16777216
    done
    section bound-9 node_budget 9 16777216
    placed
    moved
    section probe probe
    section pages-of-the-probe cat /tmp/pages
}

# What the instrument finds of nodes without processors, and of files that are mapped directly, and where the kernel saw its memory meanwhile.
# A process that ends while it is looked at has no memory to be told of: nothing is said of that here.
probe() {
    terrace probe --quick --part latency --node node2 --node node3 --node dax0 --json 2>/tmp/said-probe &
    while kill -0 $!; do
        grep 'bind:' "/proc/$!/numa_maps"
        sleep 0.1
    done >/tmp/pages 2>/dev/null
    wait $! || { cat /tmp/said-probe && false; }
}

# A map whose values are to lie on a node without processors, and what does not fit there.
placed() {
    mkdir -p /tmp/placed
    cat >/tmp/placed/terrace.toml <<END
[[tier]]
name = "slow"
kind = "node"
node = 2
bytes = "32 MiB"
[[tier]]
name = "fast"
kind = "node"
node = 1
bytes = "1 MiB"
[maps.0]
tier = "slow"
when_full = "refuse"
[maps.1]
index_tier = "fast"
END
    serve 6381 /tmp/placed
    section writes-to-a-tier writes_to_a_tier 6381
    section pages-of-a-tier grep 'bind:' "/proc/$(pidof terrace)/numa_maps"
    section keys-for-an-index keys_for_an_index
    section pages-of-an-index grep 'bind:1' "/proc/$(pidof terrace)/numa_maps"
    kill -TERM "$(pidof terrace)"
    wait
}

# A map whose values move from one node without processors to another when the first is full.
moved() {
    mkdir -p /tmp/moved
    cat >/tmp/moved/terrace.toml <<END
[[tier]]
name = "fast"
kind = "node"
node = 1
bytes = "24 MiB"
[[tier]]
name = "slow"
kind = "node"
node = 2
bytes = "32 MiB"
[maps.0]
tier = "fast"
far_tier = "slow"
when_full = "refuse"
END
    serve 6382 /tmp/moved
    section writes-to-two-tiers writes_to_a_tier 6382
    section pages-of-two-tiers grep 'bind:1' "/proc/$(pidof terrace)/numa_maps"
    section values-of-two-tiers values_of_two_tiers
    section says-of-two-tiers says_of_two_tiers
    kill -TERM "$(pidof terrace)"
    wait
}

# Each value, counted by what it is.
values_of_two_tiers() {
    awk 'BEGIN {
        for (n = 0; n < 1280; n++) printf "GET k%d\r\n", n
        printf "QUIT\r\n"
    }' | nc 127.0.0.1 6382 | awk '{ sub("\r", ""); whole = length($0) == 32768 && $0 ~ /^x+$/
        print whole ? "whole" : substr($0, 1, 20) }' | sort | uniq -c
}

says_of_two_tiers() {
    printf 'INFO everything\r\nQUIT\r\n' | nc 127.0.0.1 6382 | grep -E '^(tier_|db0_)'
}

# More short keys than the index has room for; each answer, counted.
keys_for_an_index() {
    awk 'BEGIN {
        printf "SELECT 1\r\n"
        for (n = 0; n < 120000; n++) printf "SET k%d x\r\n", n
        printf "QUIT\r\n"
    }' | nc 127.0.0.1 6381 | cut -c 1-40 | sort | uniq -c
}

# 40 MiB in values of 32 KiB to the server at a port; each answer, counted.
writes_to_a_tier() {
    awk 'BEGIN {
        value = sprintf("%32768s", "")
        gsub(" ", "x", value)
        for (n = 0; n < 1280; n++) printf "SET k%d %s\r\n", n, value
        printf "QUIT\r\n"
    }' | nc 127.0.0.1 "$1" | sort | uniq -c
}

# Every value design with every persist level.
MAPS="log-values log-index log-full slab-values slab-index slab-full"

settings_of_maps() {
    echo 'durability = "sync"'
    echo 'domain = "adr"'
    echo 'memory_budget = "256 MiB"'
    number=0
    for map in $MAPS; do
        [ "$1" = numbered ] && name=$number || name=$map
        number=$((number + 1))
        echo "[maps.$name]"
        echo "values = \"${map%-*}\""
        echo "persist = \"${map#*-}\""
    done
}

# The same lines whatever boot makes them.
records() {
    awk -v records="$records" 'BEGIN {
        for (n = 0; n < records; n++) printf "user%08d,value %d of the load\n", n, n * 7919 % 104729
    }'
}

load() {
    mkdir -p /pm/store
    settings_of_maps >/pm/store/terrace.toml
    { echo key,value; records; } >/tmp/records.csv
    section put terrace put /pm/store log-values greeting hello
    section get terrace get /pm/store log-values greeting
    section del terrace del /pm/store log-values greeting
    for map in $MAPS; do
        section "import-$map" terrace import /pm/store "$map" /tmp/records.csv --format csv --json
    done
}

# What the load left, in another boot: the procedure that opened each map, and each record.
reopen() {
    section reopen terrace open /pm/store --explain --json
    records | sort >/tmp/records
    for map in $MAPS; do
        section "compare-$map" compare "$map"
    done
}

compare() {
    terrace scan /pm/store "$1" | tr '\t' , | sort >/tmp/found
    wc -l </tmp/found
    cmp /tmp/records /tmp/found
}

serve() {
    port=$1
    shift
    terrace serve "$@" --port "$port" >"/tmp/said-$port" 2>&1 &
    until grep -q '^listening' "/tmp/said-$port" || ! kill -0 $! 2>/dev/null; do sleep 0.1; done
    section "serve-$port" cat "/tmp/said-$port"
}

# Two servers until the power fails: one on persistent memory, and one on a disk in memory.
fail() {
    mkdir -p /pm/served
    settings_of_maps numbered >/pm/served/terrace.toml
    serve 6379 /pm/served
    section mapped sync_mappings
    serve 6380 /tmp/volatile --durability sync --memory-budget 64MiB
    for database in 0 1 2 3 4 5; do
        write 6379 $database $database &
    done
    write 6380 0 volatile &
    wait
}

# Files of values mapped so that a store needs no file system to be found again ("sf").
sync_mappings() {
    awk '/ \/pm\// { file = $NF } /^VmFlags/ { if (file) print file ":" $0; file = "" }' \
        "/proc/$(pidof terrace)/smaps"
}

# Operations on one connection until the power fails, few of them unanswered at a time; each that is
# acknowledged is said at once.
write() {
    mkfifo "/tmp/to-$3"
    nc 127.0.0.1 "$1" <"/tmp/to-$3" | awk -v database="$2" -v map="$3" -v n="$from" -v keys="$keys" '
        function ask() {
            if (n % 7 == 6) printf "DEL k%d\r\n", n % keys >server
            else printf "SET k%d %d%s\r\n", n % keys, n, substr(filler, 1, n % 61) >server
            n++
        }
        BEGIN {
            server = "/tmp/to-" map
            filler = "............................................................"
            first = n
            printf "SELECT %d\r\n", database >server
            for (i = 0; i < 8; i++) ask()
            fflush(server)
        }
        NR == 1 && /^.OK/ { next }
        /^[+:]/ { print "@@ acknowledged", map, first++; fflush(); ask(); fflush(server); next }
        { print "@@ refused", map, first, $0; fflush() }'
}

verify() {
    section recovered terrace open /pm/served --explain
    for database in 0 1 2 3 4 5; do
        section "found-$database" terrace scan /pm/served $database
    done
    section found-volatile terrace scan /tmp/volatile 0
}

modprobe -a nfit nd_pmem device_dax dax_pmem kmem
echo "@@ booted $(busybox cut -d ' ' -f 1 /proc/uptime)"
for step in $(echo "$steps" | tr , ' '); do
    case $step in
        format | mount_direct | give_to_kernel) section "$step" "$step" ;;
        *) "$step" ;;
    esac
    echo "@@ done $step $(busybox cut -d ' ' -f 1 /proc/uptime)"
done
umount /pm
echo "@@ over"
poweroff -f
