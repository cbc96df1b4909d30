# The steps of a test run. Each has a name, a log and a time, and some run in the background. Source this file.
#
#   step NAME COMMAND…      runs a command and shows its output as it arrives
#   start NAME COMMAND…     runs a command in the background
#   finish NAME             waits for a command in the background, then shows its output
#   close_with NAME COMMAND…   runs the last command; its output comes at the very end, after the table of times
#
# A command may be a function; it runs in its own shell with `set -euo pipefail`. Its output is kept in target/test-logs. A
# step that fails ends the run: its output is shown under its name, and the last line names it. The end of the run also ends
# the steps in the background.

logs=$PWD/target/test-logs
rm -rf "$logs"
mkdir -p "$logs"
declare -A step_pid step_began
step_names=()
failed_step=
run_began=$(date +%s)

minutes() { printf '%d:%02d' $(($1 / 60)) $(($1 % 60)); }
log_of() { echo "$logs/${1//[^a-zA-Z0-9]/-}.log"; }

start() { # name, command
  local name=$1 log
  shift
  log=$(log_of "$name")
  step_names+=("$name")
  step_began[$name]=$(date +%s)
  : >"$log"
  # A separate process group, so that all of it can be ended.
  set -m
  (
    trap - EXIT INT TERM
    set +e
    (set -euo pipefail; "$@")
    echo "$? $(date +%s)" >"$log.end"
  ) >"$log" 2>&1 </dev/null &
  step_pid[$name]=$!
  set +m
}

# Waits for a step and returns its status.
await() { # name
  local name=$1 status ended
  # A signal interrupts the wait, and its trap ends the run.
  wait "${step_pid[$name]}" || true
  unset "step_pid[$name]"
  # A killed step has not written its status.
  [[ -s $(log_of "$name").end ]] || return 1
  read -r status ended <"$(log_of "$name").end"
  return "$status"
}

heading() { printf '\n== %s (after %s)\n' "$1" "$(minutes $(($(date +%s) - run_began)))"; }

fail() { # name
  failed_step=$1
  exit 1
}

step() { # name, command
  local name=$1 follower status=0
  heading "$name"
  start "$@"
  tail --follow --lines=+1 --sleep-interval=0.1 --pid="${step_pid[$name]}" "$(log_of "$name")" &
  follower=$!
  await "$name" || status=$?
  wait "$follower" || true
  ((status == 0)) || fail "$name"
}

finish() { # name
  local name=$1 status=0
  await "$name" || status=$?
  heading "$name, which ran in the background"
  cat "$(log_of "$name")"
  ((status == 0)) || fail "$name"
}

close_with() { # name, command
  local name=$1 progress status=0
  heading "$name: the output comes at the end"
  start "$@"
  # Cargo names each program that it starts; these lines are shown meanwhile.
  tail --follow --lines=+1 --sleep-interval=0.1 --pid="${step_pid[$name]}" "$(log_of "$name")" |
    grep --line-buffered --extended-regexp '^ +(Running|Compiling) |^test .* FAILED$' &
  progress=$!
  await "$name" || status=$?
  wait "$progress" || true
  if ((status == 0)); then times; fi
  heading "$name"
  cat "$(log_of "$name")"
  if ((status != 0)); then
    heading "$name: what the failed ones printed"
    what_failed <"$(log_of "$name")"
    fail "$name"
  fi
}

# Of the output of test programs, what the failed tests printed: it is far above the end where several programs follow.
what_failed() { awk '/^---- .* ----$/ { shown = 1 } /^failures:$/ || /^test result:/ { shown = 0 } shown'; }

# The same in short, for the very end: the names of the failed tests, each with the first lines of its panic.
why_failed() {
  awk '/^---- .* ----$/ { name = $2; lines = 0; next }
       /^failures:$/ || /^test result:/ { name = "" }
       name != "" && /^thread .* panicked at / { printf "\nfailed test: %s\n", name; lines = 8 }
       lines > 0 { print substr($0, 1, 500); lines-- }
       /^(error: test failed|FAILED |not ok )/ { print substr($0, 1, 500) }' | tail -n 120
}

# Prints the table of times. Steps that ran at the same time overlap.
times() {
  local name status ended
  printf '\n%-58s %8s %8s\n' "what took how long" began took
  for name in "${step_names[@]}"; do
    # A step that was ended with the run has no end time.
    [[ -s $(log_of "$name").end ]] || continue
    read -r status ended <"$(log_of "$name").end"
    printf '%-58s %8s %8s\n' "$name" "$(minutes $((step_began[$name] - run_began)))" "$(minutes $((ended - step_began[$name])))"
  done
  printf '%-58s %8s %8s\n' "all of it" 0:00 "$(minutes $(($(date +%s) - run_began)))"
}

end_run() {
  local status=$? name pid
  trap '' INT TERM
  set +e
  for name in "${!step_pid[@]}"; do
    pid=${step_pid[$name]}
    kill -TERM -- "-$pid" 2>/dev/null && echo "$0: ended in the background: $name" >&2
  done
  for pid in "${step_pid[@]}"; do wait "$pid" 2>/dev/null; done
  if [[ -n $failed_step ]]; then
    times
    why_failed <"$(log_of "$failed_step")"
    echo "$0: failed: $failed_step" >&2
  elif ((status != 0)); then
    echo "$0: ended with status $status" >&2
  fi
  exit "$status"
}
trap end_run EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
