//! Progress: for every stalled stream some part is at work.

use ackpace_core::Machine;
use ackpace_core::conn::StreamId;
use ackpace_core::why::Wait;

use super::client::ClientState;
use super::disk_thread::Ask;
use super::shell::Run;

impl Run<'_> {
    /// Once the worker has no more orders, each of its streams waits for exactly one event that will come: its socket
    /// becomes writable, the timer of its share ends, its slice is made, or the disk has its want or has answered it.
    pub fn check(&self) {
        for client in self.clients.iter().flatten() {
            client.share.check(client.unacked_bytes);
        }
        let orders = self.worker.deadline().is_some_and(|at| at <= self.now);
        if orders {
            return;
        }
        assert!(
            self.worker.connections() == 0 || self.worker.deadline().is_some(),
            "somebody is waited for without a deadline"
        );
        for client in self.clients.iter().flatten() {
            self.check_one(client);
        }
        self.check_disk();
    }

    fn check_one(&self, client: &ClientState) {
        let snapshot = self.worker.snapshot_of(client.id, self.now);
        let snapshot = snapshot.expect("who is not closed is known to the worker");
        let has_share = self.worker.sender(client.id).is_some();
        client.share.check_quiet(has_share, snapshot.fill_bytes);
        let Some((stream, response)) = &client.response else {
            assert!(
                client.resolving.is_some() || snapshot.response.is_none(),
                "a response of which the shell knows nothing"
            );
            let looks_up = snapshot.phase == "resolving";
            assert_eq!(client.resolving.is_some(), looks_up, "who looks it up?");
            return;
        };
        let Some(seen) = snapshot.response.filter(|seen| seen.stream == *stream) else {
            panic!("{stream:?} is not ended, and the worker does not know it");
        };
        let waits = match seen.stands_for {
            _ if response.slicing => true,
            Wait::Disk => self.disk_owes(*stream),
            Wait::Margin | Wait::Socket | Wait::Window => client.awaits_writable,
            Wait::Turn => false,
        };
        assert!(
            waits,
            "{stream:?} stands still ({:?}, {} bytes left), and nobody owes it anything",
            seen.stands_for, seen.left_bytes
        );
    }

    /// Whether a stream that waits for the disk will get an answer.
    fn disk_owes(&self, stream: StreamId) -> bool {
        let place = stream.conn.index;
        let asked = self.asks.get(place);
        let asked =
            asked.is_some_and(|ask| matches!(ask, Ask::Want(want) if want.stream == stream));
        let answered = self.completions.get(place).is_some_and(|completions| {
            completions.stream == stream && completions.is_awaited(&self.worker)
        });
        let outstanding = self.disk_thread.outstanding.get(&place);
        let holds = outstanding.is_some_and(|s| s.want.stream == stream && s.holds);
        assert!(!(answered && holds), "a want that is answered stands");
        asked || holds || answered && self.worker_woken
    }

    /// The disk machine must not hold wants for no reason: it waits for a read, a layout, memory or a time.
    fn check_disk(&self) {
        let disk_thread = &self.disk_thread;
        assert_eq!(disk_thread.disk.forgotten(), [], "nobody works for a want");
        let holds = disk_thread
            .outstanding
            .values()
            .any(|outstanding| outstanding.holds);
        let comes = !disk_thread.reads.is_empty() || !disk_thread.maps.is_empty();
        let memory = disk_thread.used > 0 || disk_thread.freed > 0;
        let busy = comes || memory || !self.asks.is_empty();
        assert!(
            !holds || busy || !disk_thread.quiet || disk_thread.disk.deadline().is_some(),
            "the disk machine has a want, and nothing to do: {:?}",
            disk_thread.outstanding
        );
    }
}
