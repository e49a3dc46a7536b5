//! What becomes of a session and its tasks when something comes, or nothing does.

use super::bringing::{self, Bringing};
use super::{
    AGAIN_US, AGAIN_US_MAX, End, LASTS_US, LATER_US, Link, MOVES_MAX, REPEATS_MAX, Session, Told,
    Unit, Up,
};
use crate::iscsi::initiator::{Event, Initiator, Outcome, TaskId};
use crate::iscsi::login::Agreed;

impl Session {
    pub(super) fn logged_in(&mut self, agreed: Agreed, now_us: u64) {
        let Link::LoggingIn { until_us, .. } = self.link else {
            return;
        };
        let mut initiator = Initiator::new(agreed, self.address.lun);
        let mut bringing = Bringing::default();
        bringing.begin(&mut initiator);
        self.link = Link::Up(Box::new(Up {
            initiator,
            bringing,
            until_us,
            moved_us: now_us,
            pinged_us: None,
            asked_us: now_us,
            is_leaving: false,
        }));
    }

    pub(super) fn move_to(&mut self, to: (String, u16), is_permanent: bool, now_us: u64) {
        self.moves += 1;
        if self.moves > MOVES_MAX {
            let why = format!("the target has moved {MOVES_MAX} times without end");
            return self.failed(why, now_us);
        }
        if is_permanent {
            (self.address.host, self.address.port) = to.clone();
        }
        self.moved_to = Some(to);
        self.closes = true;
        self.link = Link::Down { again_us: 0 };
    }

    /// Takes what the initiator tells.
    pub(super) fn hear(&mut self, now_us: u64) {
        while let Link::Up(up) = &mut self.link {
            let Some(event) = up.initiator.event() else {
                return;
            };
            match event {
                Event::Data {
                    place,
                    len_bytes,
                    crc,
                } => {
                    up.moved_us = up.moved_us.max(now_us);
                    if !bringing::is_own(place.task) {
                        self.told.push_back(Told::Data {
                            place,
                            len_bytes,
                            crc,
                        });
                    }
                }
                Event::Done { task, outcome } => {
                    up.moved_us = up.moved_us.max(now_us);
                    match bringing::is_own(task) {
                        true => self.own_done(task, outcome, now_us),
                        false => self.done(task, outcome, now_us),
                    }
                }
                Event::Pong => {
                    up.pinged_us = None;
                    if up.initiator.load() == 0 {
                        up.moved_us = up.moved_us.max(now_us);
                    }
                }
                Event::Attention(sense) if sense.is_capacity_changed() => {
                    up.bringing.look_again(&mut up.initiator);
                }
                Event::Attention(_) => {}
                Event::LogoutRequested { .. } => {
                    up.is_leaving = true;
                    up.initiator.log_out();
                }
                Event::LoggedOut => {
                    self.closes = true;
                    self.left(now_us);
                }
            }
        }
    }

    /// A session ended in order: the next one begins at once, unless the caller wants none.
    pub(super) fn left(&mut self, now_us: u64) {
        self.down(now_us, now_us);
        if self.is_over() {
            self.over();
        }
    }

    pub(super) fn own_done(&mut self, task: TaskId, outcome: Outcome, now_us: u64) {
        let Link::Up(up) = &mut self.link else {
            return;
        };
        match up.bringing.done(task, outcome, &mut up.initiator) {
            Ok(None) => {}
            Ok(Some(unit)) => self.ready(unit, now_us),
            Err(why) => self.failed(why, now_us),
        }
    }

    pub(super) fn ready(&mut self, unit: Unit, now_us: u64) {
        if let Some(before) = self
            .unit
            .as_ref()
            .filter(|before| before.serial != unit.serial)
        {
            let why = format!(
                "another unit answers: its serial number is {}, not {}",
                unit.serial.as_deref().unwrap_or("none"),
                before.serial.as_deref().unwrap_or("none"),
            );
            return self.failed(why, now_us);
        }
        self.unit = Some(unit.clone());
        self.trouble = None;
        if self.down_since_us.take().is_some() {
            self.ready_us = now_us;
        }
        (self.moves, self.moved_to) = (0, None);
        self.told.push_back(Told::Ready(unit));
    }

    pub(super) fn done(&mut self, id: TaskId, outcome: Outcome, now_us: u64) {
        let Some(task) = self.tasks.get_mut(&id) else {
            return;
        };
        let end = match outcome {
            Outcome::Good { len_bytes } => End::Good { len_bytes },
            Outcome::Failed(failure) => End::Failed(failure),
            Outcome::Aborted => End::Aborted,
            Outcome::Later(_) if task.is_aborting => End::Aborted,
            Outcome::Later(_) => {
                let since_us = *task.put_off_us.get_or_insert(now_us);
                if now_us.saturating_sub(since_us) < self.patience_us {
                    self.later.push_back((now_us + LATER_US, id));
                    return;
                }
                End::Unreachable
            }
        };
        self.end(id, end);
    }

    /// A task ends for the caller, and is not the initiator's any more.
    pub(super) fn end(&mut self, id: TaskId, end: End) {
        self.waiting.retain(|waiting| *waiting != id);
        self.later.retain(|(_, later)| *later != id);
        if self.tasks.remove(&id).is_some() {
            self.told.push_back(Told::Done { task: id, end });
        }
    }

    /// The session, or the attempt to have one, failed.
    pub(super) fn failed(&mut self, why: String, now_us: u64) {
        let lasted = self.is_ready()
            && self.down_since_us.is_none()
            && now_us.saturating_sub(self.ready_us) >= LASTS_US;
        let waits_us = match lasted {
            true => 0,
            false => (AGAIN_US << self.failures.min(8)).min(AGAIN_US_MAX),
        };
        self.failures = match lasted {
            true => 0,
            false => self.failures.saturating_add(1),
        };
        (self.moves, self.moved_to) = (0, None);
        self.closes = true;
        self.down(now_us + waits_us, now_us);
        if self.trouble.as_ref() != Some(&why) {
            self.trouble = Some(why.clone());
            self.told.push_back(Told::Trouble(why));
        }
    }

    /// There is no session any more. What is unanswered is asked by the next one, in the same order, before what waited.
    pub(super) fn down(&mut self, again_us: u64, now_us: u64) {
        let before = std::mem::replace(&mut self.link, Link::Down { again_us });
        self.down_since_us.get_or_insert(now_us);
        let Link::Up(up) = before else {
            return;
        };
        let unanswered = up.initiator.unanswered();
        for (id, _) in unanswered.into_iter().rev() {
            let Some(task) = self.tasks.get_mut(&id) else {
                continue; // the session's own
            };
            task.repeats += 1;
            match task.repeats > REPEATS_MAX {
                true => self.end(id, End::Unreachable),
                false => self.waiting.push_front(id),
            }
        }
        let aborting = self.tasks.iter().filter(|(_, task)| task.is_aborting);
        let aborting: Vec<TaskId> = aborting.map(|(id, _)| *id).collect();
        aborting
            .into_iter()
            .for_each(|id| self.end(id, End::Aborted));
    }
}
