here="/tmp/.berth-mpi-$BERTH_RUN"
mkdir -p "$here" || exit 1
cat > "$here/rsh" <<'SCRIPT'
#!/bin/sh
here=${0%/*}
rank=${1#worker-}
shift
if [ "$rank" = 0 ]; then exec sh -c "$*"; fi
id=$$-$rank
line="until [ -x '$here/rsh' ]; do sleep 0.1; done; $*"
printf '%s\n%s' "$rank" "$line" > "$here/$id.new" && mv "$here/$id.new" "$here/$id.ask" || exit 255
waited=0
until [ -e "$here/$id.code" ]; do
    if [ -e "$here/$id.sent" ]; then waited=$((waited + 1)); fi
    if [ $waited -gt 900 ]; then echo "worker-$rank: the server does not answer" >&2; exit 255; fi
    sleep 0.2
done
read -r code text < "$here/$id.code"
rm -f "$here/$id.sent" "$here/$id.code"
if [ -n "$text" ]; then echo "worker-$rank: $text" >&2; fi
exit "$code"
SCRIPT
chmod 700 "$here/rsh" || exit 1
if [ "$BERTH_RANK" != 0 ]; then
    stopped=
    trap 'stopped=1' TERM
    until [ -s "$here/end" ]; do
        if [ -n "$stopped" ] && ! grep -qsE 'orted|prted' /proc/[0-9]*/comm; then exit 143; fi
        sleep 0.2 &
        wait $!
    done
    exit 0
fi
hosts=worker-0:1 rank=1
while [ $rank -lt "$BERTH_WORKERS" ]; do
    hosts="$hosts,worker-$rank:1" rank=$((rank + 1))
done
export OMPI_MCA_btl="${OMPI_MCA_btl:-self,tcp}" OMPI_MCA_odls_base_sigkill_timeout="${OMPI_MCA_odls_base_sigkill_timeout:-5}"
mpirun --allow-run-as-root --mca plm_rsh_agent "$here/rsh" --mca plm_rsh_no_tree_spawn 1 --bind-to none \
    --host "$hosts" -np "$BERTH_WORKERS" "$@" &
job=$!
trap 'kill -TERM $job' TERM
wait $job
code=$?
while kill -0 $job 2>/dev/null; do
    wait $job
    code=$?
done
if [ $code != 0 ]; then exit $code; fi
rank=1
while [ $rank -lt "$BERTH_WORKERS" ]; do
    (for try in 1 2 3 4 5; do "$here/rsh" worker-$rank "echo done > '$here/end'" && exit; sleep 1; done) &
    rank=$((rank + 1))
done
wait
exit 0
