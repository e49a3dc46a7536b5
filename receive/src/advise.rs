//! `receive advise`: which settings bear on how long segments wait, what each is now, what changing it would do, and
//! whether that was measured. It reads, and changes nothing.

use ackpace_host_base::failure::Failure;
use ackpace_host_base::fields::is_unsafe;
use ackpace_host_base::tell;
use serde::Serialize;

use crate::facts::{self, Class, Facts, Group, Process};

/// One setting.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Advice {
    /// Which.
    pub what: &'static str,
    /// What it is now, or why that is not known.
    pub now: String,
    /// What changing it would do.
    pub change: String,
    /// What was measured of it (docs/host-receive.md has how); `None`: nothing was.
    pub measured: Option<&'static str>,
}

/// Tells of this machine, and of one process.
///
/// # Errors
/// There is no such process.
pub fn run(pid: Option<u32>, json: bool) -> Result<(), Failure> {
    let facts = facts::read(pid);
    if let Some(process) = facts
        .process
        .as_ref()
        .filter(|process| process.name.is_empty())
    {
        let pid = process.pid;
        return Err(Failure::operator(format!(
            "--pid {pid}: there is no such process"
        )));
    }
    for advice in advice(&facts) {
        match json {
            true => tell!("{}", serde_json::to_string(&advice).unwrap_or_default()),
            false => tell!("{}", advice.lines()),
        }
    }
    if facts.process.is_none() && !json {
        tell!("--pid PID tells of a process: its class, nice value, slice, and cgroup");
    }
    Ok(())
}

impl Advice {
    fn lines(&self) -> String {
        let measured = self.measured.unwrap_or("not measured");
        format!(
            "{}: {}\n     change: {}\n     measured: {measured}",
            self.what, self.now, self.change
        )
    }
}

fn of(
    what: &'static str,
    now: impl Into<String>,
    change: impl Into<String>,
    measured: Option<&'static str>,
) -> Advice {
    Advice {
        what,
        now: now.into(),
        change: change.into(),
        measured,
    }
}

/// What follows from the facts.
pub fn advice(facts: &Facts) -> Vec<Advice> {
    let mut all = vec![preemption(facts), hrtick(facts), slice(facts)];
    if let Some(process) = &facts.process {
        all.extend(class(process));
        all.push(nice(facts, process));
        all.push(weight(process));
        all.push(quota(process));
    }
    all.push(busy_poll(facts));
    all
}

/// A cgroup's path, fit for a terminal: whoever may make cgroups gives them names.
fn shown(group: &Group) -> String {
    let path = group.path.display().to_string();
    path.replace(is_unsafe, "?")
}

fn known<T: ToString>(value: &Result<T, String>) -> String {
    match value {
        Ok(value) => value.to_string(),
        Err(why) => format!("not known ({why})"),
    }
}

fn preemption(facts: &Facts) -> Advice {
    let change = match facts.preemption.as_deref() {
        Ok(mode) if mode.starts_with("none") || mode.starts_with("voluntary") => {
            "nothing to gain: the kernel takes the core from a call only where it offers it, which a receiver does between \
             two parts of a long backlog. 'full' would take it anywhere in a copy"
        }
        Ok(mode) if mode.starts_with("lazy") => {
            "preempt=none (kernel command line, or /sys/kernel/debug/sched/preempt) takes the core from a call only where it \
             offers it, so a receiver loses it with the lock less often; other tasks wait longer for the end of a call"
        }
        _ => {
            "preempt=lazy or none (kernel command line, or /sys/kernel/debug/sched/preempt): with 'full' a receiver loses \
             the core anywhere in a copy, with the lock; with 'none' only between two parts of a long backlog"
        }
    };
    of(
        "preemption of the kernel",
        known(&facts.preemption),
        change,
        None,
    )
}

fn hrtick(facts: &Facts) -> Advice {
    let on = facts
        .hrtick
        .as_ref()
        .map(|on| if *on { "on" } else { "off" });
    of(
        "HRTICK",
        known(&on.map_err(Clone::clone)),
        "on (HRTICK into /sys/kernel/debug/sched/features), a slice ends on time and not at the next tick of 1 to 10 ms: a \
         receiver waits for shorter turns of the others, and its own end sooner, too",
        None,
    )
}

fn ms(ns: u64) -> String {
    format!("{}.{:02} ms", ns / 1_000_000, ns / 10_000 % 100)
}

fn slice(facts: &Facts) -> Advice {
    let common = facts
        .slice_ns
        .as_ref()
        .map(|ns| ms(*ns))
        .map_err(Clone::clone);
    let own = match facts.process.as_ref().map(|process| &process.scheduling) {
        None => String::new(),
        Some(Ok(of)) => match of.slice_ns {
            Some(ns) => format!("{} of the process; ", ms(ns)),
            None => "the kernel does not tell that of the process (Linux 6.12 does); ".to_owned(),
        },
        Some(Err(why)) => format!("not known of the process ({why}); "),
    };
    of(
        "slice",
        format!("{own}common: {}", known(&common)),
        "a longer one (sched_setattr(2), 0.1 to 100 ms, Linux 6.12 or later) lets a receiver finish more calls before its turn \
         ends, and makes it wait longer for the next; a shorter one the reverse. Its share of the core stays",
        SLICE_MEASURED,
    )
}

/// Nothing, if the class is the usual one.
fn class(process: &Process) -> Option<Advice> {
    let class = process.scheduling.as_ref().ok()?.class;
    let (now, change) = match class {
        Class::Other => return None,
        Class::Batch => (
            "SCHED_BATCH",
            "SCHED_OTHER (chrt -o -p 0): it would wake in time for what arrives",
        ),
        Class::Idle => (
            "SCHED_IDLE",
            "SCHED_OTHER (chrt -o -p 0): it runs only when nobody else wants to, lock or not",
        ),
        Class::RealTime => (
            "real time",
            "nothing: it waits for no usual task, and 'guard' never touches it",
        ),
    };
    Some(of("class", now, change, None))
}

fn nice(facts: &Facts, process: &Process) -> Advice {
    let nice = process
        .scheduling
        .as_ref()
        .map(|scheduling| scheduling.nice);
    let mut now = known(&nice.map_err(Clone::clone));
    if let Some(group) = process.autogroup.as_ref().filter(|_| facts.autogroups) {
        now += &format!(", in autogroup {group}");
    }
    let scope = match facts.autogroups {
        true => {
            "; with kernel.sched_autogroup_enabled=1 it counts within its session only, and /proc/PID/autogroup beside \
                 other sessions, where no CPU cgroup is above it"
        }
        false => "; it counts within its CPU cgroup only",
    };
    let change =
        "each step down gives it 25 % more of the core, at the cost of all others, for good";
    of("nice", now, format!("{change}{scope}"), NICE_MEASURED)
}

fn weight(process: &Process) -> Advice {
    let group = process.group.as_ref();
    let now = match group.and_then(|group| Some((group, group.weight.as_ref()?))) {
        Some((group, weight)) => format!("{weight} ({})", shown(group)),
        None => "in no CPU cgroup of its own".to_owned(),
    };
    of(
        "weight of the cgroup",
        now,
        "more (cpu.weight, CPUWeight= of a unit; cpu.shares in version 1) gives the whole group more beside others; nothing \
         changes among its own tasks",
        WEIGHT_MEASURED,
    )
}

fn quota(process: &Process) -> Advice {
    let group = process.group.as_ref();
    let throttled = group.and_then(|group| group.throttled).unwrap_or(0);
    let now = match group.and_then(|group| group.quota.as_ref()) {
        Some(quota) => format!("{quota}; it was reached {throttled} times"),
        None => "none".to_owned(),
    };
    of(
        "bound of the cgroup",
        now,
        "without one (cpu.max, CPUQuota=) nobody is stopped for the rest of a period of 100 ms; before Linux 6.18 that also \
         stops a task that owns a socket's lock",
        None,
    )
}

fn busy_poll(facts: &Facts) -> Advice {
    let now = match facts.busy_read_us {
        Some(us) => format!("net.core.busy_read = {us} us"),
        None => "this kernel has none".to_owned(),
    };
    let change = format!(
        "some 50 us let a receiver ask the network card itself in place of sleeping: it saves the wake-up, not the wait for a \
         core, and takes one of {} processors while it asks. Loopback has no card to ask",
        facts.cpus
    );
    of("busy poll", now, change, None)
}

// Ten loops beside one receiver of long calls, two or three runs each: docs/host-receive.md has the machine.
const SLICE_MEASURED: Option<&str> = Some(
    "segments with T_wait from 10 ms on: 2.6 to 11.6 % with the common slice, 3.1 to 4.9 with .1 ms, 2.2 to 11.0 with 100 ms",
);
const NICE_MEASURED: Option<&str> = Some(
    "segments with T_wait from 10 ms on: 2.6 to 11.6 % at nice 0, .1 to .7 at -5 (with 9 to 14 % of the core in place of 2 to 6 %), \
     0 to .6 at -20",
);
const WEIGHT_MEASURED: Option<&str> = Some(
    "segments with T_wait from 10 ms on: 2.6 to 11.6 % in the group of the others, .1 to .2 in one of ten times their weight (with \
     10 to 14 % of the core in place of 2 to 6 %)",
);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::{Group, Scheduling};

    fn facts() -> Facts {
        Facts {
            preemption: Ok("full".to_owned()),
            hrtick: Err("no debugfs".to_owned()),
            slice_ns: Ok(2_800_000),
            autogroups: true,
            busy_read_us: Some(0),
            cpus: 2,
            process: None,
        }
    }

    fn with_process(class: Class) -> Facts {
        let process = Process {
            pid: 7,
            name: "rx".to_owned(),
            scheduling: Ok(Scheduling {
                class,
                nice: -5,
                slice_ns: Some(100_000),
            }),
            group: Some(Group {
                path: "/sys/fs/cgroup/web".into(),
                weight: Some("100".to_owned()),
                quota: Some("50000 100000".to_owned()),
                throttled: Some(9),
            }),
            autogroup: Some("/autogroup-71 nice 0".to_owned()),
        };
        Facts {
            process: Some(process),
            ..facts()
        }
    }

    fn named<'a>(all: &'a [Advice], what: &str) -> &'a Advice {
        all.iter().find(|advice| advice.what == what).expect(what)
    }

    #[test]
    fn what_is_not_known_says_why_and_each_says_whether_it_was_measured() {
        let all = advice(&facts());
        assert_eq!(named(&all, "HRTICK").now, "not known (no debugfs)");
        assert_eq!(named(&all, "slice").now, "common: 2.80 ms");
        assert!(
            named(&all, "preemption of the kernel")
                .change
                .starts_with("preempt=lazy or none")
        );
        assert!(
            all.iter()
                .all(|advice| advice.lines().contains("     measured: "))
        );
        assert!(
            !all.iter().any(|advice| advice.what == "nice"),
            "no process was named"
        );
    }

    #[test]
    fn a_process_is_told_of() {
        let all = advice(&with_process(Class::Other));
        assert_eq!(
            named(&all, "nice").now,
            "-5, in autogroup /autogroup-71 nice 0"
        );
        assert!(
            named(&all, "slice")
                .now
                .starts_with("0.10 ms of the process")
        );
        assert!(
            named(&all, "bound of the cgroup")
                .now
                .contains("reached 9 times")
        );
        assert!(
            !all.iter().any(|advice| advice.what == "class"),
            "the usual one"
        );
        for class in [Class::Batch, Class::Idle, Class::RealTime] {
            let all = advice(&with_process(class));
            assert!(!named(&all, "class").change.is_empty());
        }
    }
}
