//! Sends a command to bash.

use std::io;

use shared_protocol::runner::{Stream, StreamMode};

use super::super::machine::{Event, JobId, Ticket};
use super::super::scratch::{OutputFifo, ScratchFile, StateFile};
use super::super::script::{self, Mark, Streams};
use super::marks::Request;
use super::{Driver, LiveBash, RunningCommand};
use crate::output::Pump;

impl Driver {
    pub(super) fn send(&mut self, id: JobId, ticket: Ticket, last_status: i32) -> Option<Event> {
        let error = self.try_send(id, ticket, last_status).err()?;
        tracing::warn!(shell = %self.view.borrow().name, %error, "a command could not be sent to bash");
        Some(Event::SendFailed { ticket })
    }

    fn try_send(&mut self, id: JobId, ticket: Ticket, last_status: i32) -> io::Result<()> {
        let Prepared { line, request, running } = self.prepare(id, ticket, last_status)?;
        // Output that is already on the terminal does not belong to the command: login files may have printed it, or a bash
        // that has no other place for its prompt.
        let printed = self.live.as_ref().and_then(|live| live.bash.drain_terminal());
        if let Some(bytes) = printed {
            self.record_terminal_output(&bytes);
        }
        let (Some(live), Some(job)) = (&mut self.live, self.jobs.get(&id)) else {
            return Err(io::ErrorKind::NotConnected.into());
        };
        if let (StreamMode::Tty, Some(stdin)) = (job.request.streams, &job.stdin) {
            live.bash.type_in(stdin);
        }
        live.bash.send_line(&line)?;
        // From here on the command may have begun, and may even have ended bash. Then the exit reports it, and nothing is
        // sent again.
        live.marks.ask(request);
        let _ = live.send_tail();
        for pump in &running.pumps {
            tokio::task::spawn_local(pump.clone().run());
        }
        running.exec.begin();
        self.running = Some(running);
        Ok(())
    }

    /// Makes the files and FIFOs of a command.
    fn prepare(&mut self, id: JobId, ticket: Ticket, last_status: i32) -> io::Result<Prepared> {
        let (Some(live), Some(job)) = (&mut self.live, self.jobs.get(&id)) else {
            return Err(io::ErrorKind::NotConnected.into());
        };
        live.old_files.clear();
        let LiveBash { bash, marks, .. } = live;
        let request = &job.request;
        let streams: &[Stream] = match request.streams {
            StreamMode::Merged => &[Stream::Merged],
            StreamMode::Split => &[Stream::Stdout, Stream::Stderr],
            StreamMode::Tty => &[],
        };
        let (mut pumps, mut held_writers, mut files) = (Vec::new(), Vec::new(), Vec::new());
        for stream in streams {
            let OutputFifo { name, reader, writer } = bash.scratch.output_fifo()?;
            pumps.push(Pump::new(reader, *stream, job.exec.log.clone())?);
            held_writers.push(writer);
            files.push(name);
        }
        let stdin = job.stdin.as_ref().filter(|_| request.streams != StreamMode::Tty);
        let stdin = stdin.map(|stdin| bash.scratch.write(stdin)).transpose()?;
        let mark = Mark::new();
        let options = self.saved_state.as_ref().or(self.fresh_options.as_ref());
        let spec = script::CommandSpec {
            command: &request.cmd,
            streams: match files.as_slice() {
                [] => Streams::Tty(bash.terminal_path()),
                [output] => Streams::Merged(output.path()),
                [stdout, stderr, ..] => Streams::Split { stdout: stdout.path(), stderr: stderr.path() },
            },
            stdin: stdin.as_ref().map(ScratchFile::path),
            variables: &mut request.env.iter().map(|(name, value)| (name.as_str(), value.as_str())),
            cwd: request.cwd.as_deref(),
            last_status,
            functrace: options.is_some_and(|state| state.has_option("functrace")),
            variable: &mark.variable,
        };
        let command = bash.scratch.write(script::command_file(bash.scratch.dir(), spec).as_bytes())?;
        let previous = marks.reported().map_or("", |mark| mark.variable.as_str());
        let line = script::command_line(command.path(), previous);
        files.extend(stdin);
        files.push(command);
        let oom_mark = self.context.oom.mark();
        let running =
            RunningCommand { job: id, exec: job.exec.clone(), pumps, held_writers, files, oom_mark, interrupt: None };
        Ok(Prepared { line, request: Request { ticket, mark, state: live.state_file() }, running })
    }
}

impl LiveBash {
    /// Makes the file for the next state. Without room for it the state is not saved, and the command runs all the same.
    pub(super) fn state_file(&self) -> Option<StateFile> {
        let made = self.bash.scratch.state_file();
        made.inspect_err(|error| tracing::warn!(%error, "there is no file for a shell's state")).ok()
    }
}

/// A command that can be sent.
struct Prepared {
    line: String,
    request: Request,
    running: RunningCommand,
}
