#!/bin/sh
# Runs a command on two machines made of network namespaces, joined by a cable (veth) of limited rate. Needs root.
#   two_machines.sh COMMAND...
# The command finds MPIRUN in its environment: a launcher that puts rank 1, 3, … on the first machine and rank 2, 4, …
# on the second, which reach each other by TCP through the cable alone. In the environment: MPIRUN, the MPI's launcher;
# RATE of the cable in Mbit/s (1000); DELAY of each direction in ms (0), which needs netem in the kernel. Where
# namespaces are not allowed, it prints "skipped: REASON" and succeeds.
set -u
launcher=${MPIRUN:-mpirun} rate=${RATE:-1000} delay=${DELAY:-0}
skip() { echo "skipped: $1"; exit 0; }
[ "$(uname -s)" = Linux ] || skip 'network namespaces need Linux'
[ "$(id -u)" = 0 ] || skip 'network namespaces need root'
for tool in ip tc unshare; do command -v $tool >/dev/null || skip "there is no $tool (iproute2, util-linux)"; done

name=heed-$$ folder=$(mktemp -d) || exit 1
end() { # also of daemons that a broken launcher leaves behind
  for i in 1 2; do
    ip netns pids "$name-$i" 2>/dev/null | xargs -r kill -9 2>/dev/null
    ip netns delete "$name-$i" 2>/dev/null
  done
  rm -rf "$folder"
}
trap end EXIT
trap 'exit 1' HUP INT TERM
try() { "$@" 2>"$folder/problem" || skip "$* failed: $(head -n 1 "$folder/problem")"; }

try ip netns add "$name-1"
try ip netns add "$name-2"
try ip link add heed0 netns "$name-1" type veth peer name heed0 netns "$name-2"
for i in 1 2; do
  on="ip netns exec $name-$i"
  try $on ip address add 10.77.0.$i/24 dev heed0
  try $on ip link set lo up
  try $on ip link set heed0 up
  parent=root
  if [ "$delay" != 0 ]; then
    try $on tc qdisc add dev heed0 root handle 1: netem delay "${delay}ms" limit 100000
    parent='parent 1:'
  fi
  # shellcheck disable=SC2086 # two words
  try $on tc qdisc add dev heed0 $parent handle 2: tbf rate "${rate}mbit" burst 128kb latency 100ms
done
# The kernel reports a new link as up a moment later; UCX does not use it before.
for i in 1 2; do
  tries=0
  until ip netns exec "$name-$i" ip link show heed0 | grep -q 'state UP'; do
    tries=$((tries + 1))
    [ $tries -lt 100 ] || skip 'the link between the namespaces does not come up'
    sleep 0.1
  done
done

# What ssh is for real machines: HOST COMMAND... Launchers quote for a shell on the other side.
cat >"$folder/ssh" <<END
#!/bin/sh
while case \$1 in -*) true ;; *) false ;; esac; do shift; done
machine=\${1##*.}
shift
exec ip netns exec $name-\$machine unshare --uts sh -c "echo machine\$machine >/proc/sys/kernel/hostname; \$*"
END
printf '#!/bin/sh\nexec %s 10.77.0.1 %s "$@"\n' "$folder/ssh" "$launcher" >"$folder/mpirun"
chmod +x "$folder/ssh" "$folder/mpirun"

# Open MPI 4
printf '10.77.0.1 slots=1\n10.77.0.2 slots=1\n' >"$folder/hosts"
export OMPI_MCA_orte_default_hostfile="$folder/hosts" OMPI_MCA_plm_rsh_agent="$folder/ssh" OMPI_MCA_pml=ob1
export OMPI_MCA_btl=self,tcp OMPI_MCA_btl_tcp_if_include=heed0 OMPI_MCA_oob_tcp_if_include=heed0
export OMPI_MCA_rmaps_base_mapping_policy=node OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
# MPICH, on UCX or libfabric. UCX would find that both machines have one memory.
printf '10.77.0.1:1\n10.77.0.2:1\n' >"$folder/machines"
export HYDRA_HOST_FILE="$folder/machines" HYDRA_LAUNCHER=ssh HYDRA_LAUNCHER_EXEC="$folder/ssh"
export UCX_TLS=tcp,self FI_PROVIDER=tcp FI_TCP_IFACE=heed0

# A first job: the MPI may need more than this machine allows.
timeout 60 "$folder/mpirun" -n 2 cat /proc/sys/kernel/hostname >"$folder/names" 2>"$folder/problem"
[ "$(sort "$folder/names" | tr '\n' ' ')" = 'machine1 machine2 ' ] || {
  cat "$folder/problem"
  echo "two_machines.sh: $launcher starts no job on two machines" >&2
  exit 1
}
MPIRUN=$folder/mpirun "$@"
