#!/usr/bin/env bash
# Makes the environment where it is missing, then starts attnlight under the launcher that fits.
#
#   ./launch.sh demo            train on the planted corpus, test, write the report
#   ./launch.sh check           ruff, mypy, yamllint, the site of docs/ and every test that is not slow
#   ./launch.sh check --all     the slow tests too: whole trainings, several devices, all commands
#   ./launch.sh VERB ARGS       `attnlight VERB ARGS`: on one machine as it is (Lightning starts one
#                               process per GPU), in a SLURM allocation of several tasks under srun,
#                               with NNODES > 1, once on each node, under torchrun
#   ./launch.sh --dry-run ...   print the commands instead of running them
#
# Variables:
#   ATTNLIGHT_VENV              folder of the environment (default: .venv beside this file); it
#                               belongs to this script, which rebuilds it after an interruption
#   NNODES NODE_RANK MASTER_ADDR [MASTER_PORT] [NPROC_PER_NODE]     what torchrun is told
#   SLURM_*                     what srun is told
set -euo pipefail

root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd -P)
venv=${ATTNLIGHT_VENV:-$root/.venv}
[[ $venv == /* ]] || venv=$PWD/$venv
python=$venv/bin/python
stamp=$venv/.attnlight-installed
dry='' # print commands
handover='' # let the next command replace this shell, so that signals reach it

fail() {
  printf 'launch.sh: %s\n' "$1" >&2
  exit 2
}

run() {
  local line
  if [[ -n $dry ]]; then
    printf -v line ' %q' "$@"
    echo "${line:1}"
  else
    ${handover:+exec} "$@"
  fi
}

# What an installation depends on; the root, because the package is installed in place.
fingerprint() {
  echo "$root $(cat -- "$root/pyproject.toml" "$root/constraints.txt" | cksum)"
}

# prepared EXTRAS
prepared() {
  local held now
  [[ -x $python && -r $stamp ]] || return 1
  held=$(<"$stamp")
  now=$(fingerprint)
  [[ $held == "$now [dev]" || $held == "$now $1" ]]
}

# The versions of Python that docs/CONTRIBUTING.md says the tests passed with.
find_python() {
  local name suits='import ensurepip, sys, venv; sys.exit(not (3, 11) <= sys.version_info < (3, 14))'
  for name in python3 python3.13 python3.12 python3.11 python; do
    if "$name" -c "$suits" >/dev/null 2>&1; then
      echo "$name"
      return
    fi
  done
  fail "no Python 3.11 to 3.13 with its venv module on PATH (on Debian: apt install python3-venv)."
}

# install EXTRAS
install() {
  local held='' base
  [[ ! -r $stamp ]] || held=$(<"$stamp")
  if [[ $held == interrupted ]] || ! "$python" -m pip --version >/dev/null 2>&1; then
    [[ ! -e $venv || -e $venv/pyvenv.cfg || -z $(ls -A -- "$venv") ]] ||
      fail "$venv is no virtual environment; name another folder in ATTNLIGHT_VENV."
    base=$(find_python)
    "$base" -m venv --clear -- "$venv"
  fi
  # pip takes a half-copied package for an installed one, hence the mark until all is there.
  echo interrupted >"$stamp"
  (cd -- "$root" && "$python" -m pip install --disable-pip-version-check -c constraints.txt -e ".$1")
  echo "$(fingerprint) $1" >"$stamp"
}

# prepare EXTRAS ('' or '[dev]'): processes that start together wait for the first.
prepare() {
  [[ -z $dry ]] || return 0
  if prepared "$1"; then return; fi
  {
    if command -v flock >/dev/null; then flock 9; fi
    if ! prepared "$1"; then
      echo "launch.sh: installing into $venv, once; this takes some minutes." >&2
      install "$1" >&2
    fi
  } 9>>"$root/constraints.txt" # opened to be locked, never written
}

# A rank of srun or torchrun must not launch again. The shell of an interactive allocation is a
# step too, always of this number, and no rank.
is_rank() {
  [[ -n ${LOCAL_RANK:-} ]] && return
  [[ -n ${SLURM_STEP_ID:-} && $SLURM_STEP_ID != 4294967290 ]] && ((${SLURM_NTASKS:-1} > 1))
}

# One process that starts its own ranks: where Lightning sees SLURM_NTASKS it waits for srun's.
alone() {
  [[ -z ${SLURM_NTASKS:-} ]] || set -- env -u SLURM_NTASKS "$@"
  run "$@"
}

# distributed NODES DEVICES ARGS...: starts the caller's `launcher`; an option in ARGS stands.
distributed() {
  local nodes=$1 devices=$2 option
  shift 2
  for option in "num_nodes $nodes" "devices $devices" "strategy ddp"; do
    [[ " $* " == *" --trainer.${option% *}"[\ =]* ]] ||
      set -- "$@" "--trainer.${option% *}" "${option#* }"
  done
  run "${launcher[@]}" "$@"
}

under_srun() {
  local nodes=${SLURM_NNODES:-1} tasks=${SLURM_NTASKS_PER_NODE:-} launcher
  if [[ -z $tasks && -n ${SLURM_NTASKS:-} ]]; then
    ((SLURM_NTASKS % nodes == 0)) ||
      fail "$SLURM_NTASKS tasks do not spread evenly over $nodes nodes; ask for --ntasks-per-node."
    tasks=$((SLURM_NTASKS / nodes))
  fi
  tasks=${tasks:-${SLURM_GPUS_ON_NODE:-1}}
  launcher=(srun --nodes "$nodes" --ntasks $((nodes * tasks)) --ntasks-per-node "$tasks")
  # srun does not inherit this one from sbatch.
  [[ -z ${SLURM_CPUS_PER_TASK:-} ]] || launcher+=(--cpus-per-task "$SLURM_CPUS_PER_TASK")
  # Lightning refuses several tasks without SLURM_NTASKS_PER_NODE and takes a job that is named
  # bash or interactive for a single process.
  launcher+=(--kill-on-bad-exit=1 env SLURM_NTASKS_PER_NODE="$tasks" SLURM_JOB_NAME=attnlight)
  launcher+=("$python" -m attnlight)
  distributed "$nodes" "$tasks" "$@"
}

count_gpus() {
  local commas
  if [[ -z ${CUDA_VISIBLE_DEVICES+set} ]]; then
    nvidia-smi -L 2>/dev/null | grep -c '^GPU' || true
  elif [[ -z $CUDA_VISIBLE_DEVICES || $CUDA_VISIBLE_DEVICES == -1 ]]; then
    echo 0
  else
    commas=${CUDA_VISIBLE_DEVICES//[!,]/}
    echo $((${#commas} + 1))
  fi
}

under_torchrun() {
  local devices=${NPROC_PER_NODE:-} name launcher
  for name in NODE_RANK MASTER_ADDR; do
    [[ -n ${!name:-} ]] || fail "NNODES is $NNODES but $name is not set."
  done
  [[ -n $devices ]] || devices=$(count_gpus)
  ((devices > 0)) || devices=1
  launcher=("$venv/bin/torchrun" --nnodes "$NNODES" --node-rank "$NODE_RANK")
  launcher+=(--nproc-per-node "$devices" --master-addr "$MASTER_ADDR")
  # Without the -- torchrun would take --run for an abbreviation of its own --run-path.
  launcher+=(--master-port "${MASTER_PORT:-29500}" -m -- attnlight)
  distributed "$NNODES" "$devices" "$@"
}

start() {
  prepare ''
  handover=yes
  case ${1:-} in
    fit | validate | test | predict)
      if is_rank; then
        run "$python" -m attnlight "$@"
      elif [[ -n ${SLURM_JOB_ID:-} ]] && ((${SLURM_NTASKS:-1} > 1 || ${SLURM_NNODES:-1} > 1)); then
        under_srun "$@"
      elif ((${NNODES:-1} > 1)); then
        under_torchrun "$@"
      elif ((${NODE_RANK:-0} > 0)); then
        fail "NODE_RANK is $NODE_RANK but NNODES is not set."
      else
        alone "$python" -m attnlight "$@"
      fi
      ;;
    *) run "$python" -m attnlight "$@" ;;
  esac
}

demo() {
  prepare ''
  run cd "$root"
  alone "$python" -m attnlight demo
}

# check [--all]
check() {
  local chosen=(-m 'not slow') types failed=0
  [[ ${1:-} != --all ]] || chosen=()
  prepare '[dev]'
  run cd "$root"
  run "$python" -m ruff check .
  run "$python" -m ruff format --check .
  run "$python" -m yamllint --strict .
  run "$python" -m mypy & # half a minute of one core each, so both at once
  types=$!
  [[ -z $dry ]] || { wait && types=''; } # lines in order
  run "$python" -m sphinx -W --keep-going -n -q docs build/site || failed=1
  wait $types || failed=1
  ((failed == 0))
  alone "$python" -m pytest -n 2 --dist worksteal "${chosen[@]}"
}

if [[ ${1:-} == --dry-run ]]; then
  dry=yes
  shift
fi
case ${1:-} in
  demo)
    (($# == 1)) || fail "demo takes no arguments."
    demo
    ;;
  check)
    [[ $# == 1 || "$*" == "check --all" ]] || fail "check takes no argument but --all."
    check "${@:2}"
    ;;
  *) start "$@" ;;
esac
