//! Sends a watch's frames to the client: changes in batches, and whatever else at once.
//!
//! A client that takes nothing makes this wait. Meanwhile the kernel keeps a bounded number of events, and says so if it dropped some.

use std::io::Write as _;
use std::time::Instant;

use shared_protocol::ErrorBody;
use shared_protocol::runner::WatchFrame;

use super::Asked;
use super::batch::Batch;
use crate::files::error::At;
use crate::files::protocol::{Content, DataWriter, ReplyWriter};

pub struct Teller<'a, 'b> {
    asked: &'a Asked<'a>,
    batch: Batch,
    reply: &'a mut ReplyWriter<'b>,
}

impl<'a, 'b> Teller<'a, 'b> {
    pub fn new(asked: &'a Asked<'a>, reply: &'a mut ReplyWriter<'b>) -> Self {
        Self { asked, batch: Batch::default(), reply }
    }

    /// Begins the reply.
    pub fn begin(&mut self) -> Result<(), ErrorBody> {
        self.reply.head(200, Content::Ndjson, None).at(self.asked.path)
    }

    /// The path for the client.
    pub fn full_path(&self, path: &[u8]) -> Vec<u8> {
        self.asked.full_path(path)
    }

    /// When the changes that wait have to be sent.
    pub fn due(&self) -> Option<Instant> {
        self.batch.due()
    }

    pub fn created(&mut self, path: &[u8], is_dir: bool) -> Result<(), ErrorBody> {
        self.batch.created(self.full_path(path), is_dir, Instant::now());
        self.send_if_full()
    }

    pub fn modified(&mut self, path: &[u8], is_dir: bool) -> Result<(), ErrorBody> {
        self.batch.modified(self.full_path(path), is_dir, Instant::now());
        self.send_if_full()
    }

    pub fn deleted(&mut self, path: &[u8], is_dir: bool) -> Result<(), ErrorBody> {
        self.batch.deleted(self.full_path(path), is_dir, Instant::now());
        self.send_if_full()
    }

    pub fn moved_away(&mut self, number: u32, path: &[u8], is_dir: bool) -> Result<(), ErrorBody> {
        self.batch.moved_away(number, self.full_path(path), is_dir, Instant::now());
        self.send_if_full()
    }

    /// Returns whether the first half of the move still waited, so that both were told as one.
    pub fn moved_here(&mut self, number: u32, path: &[u8], is_dir: bool) -> Result<bool, ErrorBody> {
        let is_move = self.batch.moved_here(number, self.full_path(path), is_dir, Instant::now());
        self.send_if_full()?;
        Ok(is_move)
    }

    fn send_if_full(&mut self) -> Result<(), ErrorBody> {
        if self.batch.is_full() { self.send() } else { Ok(()) }
    }

    /// Sends the changes that wait.
    pub fn send(&mut self) -> Result<(), ErrorBody> {
        let mut lines = DataWriter::new(self.reply);
        for change in self.batch.take() {
            line(&mut lines, &WatchFrame::Change(change)).at(self.asked.path)?;
        }
        lines.flush().at(self.asked.path)
    }

    /// Drops the changes that wait: the client will be told to list again.
    pub fn drop_changes(&mut self) {
        self.batch = Batch::default();
    }

    /// Sends one frame, after the changes that wait.
    pub fn tell(&mut self, frame: &WatchFrame) -> Result<(), ErrorBody> {
        self.send()?;
        let mut lines = DataWriter::new(self.reply);
        line(&mut lines, frame).and_then(|()| lines.flush()).at(self.asked.path)
    }

    /// Shows the runner that this process works, or waits as it should.
    pub fn progress(&mut self) -> Result<(), ErrorBody> {
        self.reply.report_progress().at(self.asked.path)
    }

    pub fn end(self) -> Result<(), ErrorBody> {
        self.reply.end().at(self.asked.path)
    }
}

fn line(to: &mut DataWriter<'_, '_>, frame: &WatchFrame) -> std::io::Result<()> {
    serde_json::to_writer(&mut *to, frame)?;
    to.write_all(b"\n")
}
