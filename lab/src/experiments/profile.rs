//! Distribution of the CPU time when everything is in memory.

use super::paced::{self, BIG, GRAIN_US, RUN_US};
use crate::experiment::{Experiment, Figure, Pace, Scenario};
use crate::judge::{Judge, Limit};
use crate::peers::Contender;
use crate::place::Place;
use crate::workloads::{Swarm, Workload};
use ackpace_lab_swarm::workload::{Class, Start, Workload as Clients};
use ackpace_lab_wan::Topology;

const CLIENTS: &str = "10.1.0.1-10.1.0.200";

/// The paper's table as figures.
pub fn experiment() -> Experiment {
    let judge = |metric| Judge::against(metric, &["nginx", "apache-prefork"], Limit::None);
    Experiment {
        name: "profile",
        title: "Where the CPU's time goes: 200 clients, all in memory",
        asks: "200 clients get a cached file through links of 5 Mbit/s each, a gigabit together. What does the server's core \
            do, by the kernel's functions: copying, scheduling and wake-ups, memory, TCP, IP? The paper found a third \
            of the time in copying, memory and scheduling, and the server itself in .3 %. In a virtual machine without \
            hardware counters many samples fall where interrupts are allowed again: they are the rest of the kernel.",
        source: "TPF, Figure 12",
        contenders: ["ackpace", "nginx", "apache-prefork"]
            .map(Contender::preset)
            .to_vec(),
        subjects: &[],
        sweep: Vec::new(),
        pace: Pace {
            rounds: 3,
            rounds_quick: 2,
            warm_up_s: 4.0,
            window_s: 6.0,
            window_quick_s: 3.0,
        },
        scenario: |_| Scenario {
            place: Place::wan(&[BIG], topology()),
            workload: Workload::Swarm(Swarm {
                profile: true,
                ..Swarm::new(clients())
            }),
        },
        judged: vec![
            judge("profile_copy_share"),
            judge("profile_scheduling_share"),
            judge("profile_memory_share"),
            judge("profile_tcp_share"),
            judge("profile_ip_share"),
            judge("profile_program_share"),
            judge("cpu_s_per_gb"),
        ],
        figures: vec![
            Figure::plain("profile_scheduling_share", "Scheduling and wake-ups"),
            Figure::plain("profile_copy_share", "Copying"),
            Figure::plain("profile_memory_share", "Memory"),
            Figure::plain("profile_tcp_share", "TCP and sockets"),
            Figure::plain("profile_ip_share", "IP and devices"),
            Figure::plain("profile_program_share", "The server itself"),
        ],
    }
}

fn topology() -> Topology {
    Topology {
        run_us: RUN_US,
        grain_us: GRAIN_US,
        path: vec![paced::link("client", CLIENTS, 5.0)],
        ..Topology::default()
    }
}

fn clients() -> Clients {
    let class = Class {
        source: Some(CLIENTS.into()),
        start: Some(Start {
            over_s: 1.0,
            ..Start::default()
        }),
        ..paced::downloads("client", 200)
    };
    Clients {
        seed: 1,
        classes: vec![class],
        ..Clients::default()
    }
}
