//! One copy less: sendfile compared with read and write, for several sizes of the socket buffer.

use crate::corpus::Set;
use crate::experiment::{Experiment, Figure, Pace, Scenario};
use crate::judge::{Judge, Limit};
use crate::peers::Contender;
use crate::place::Place;
use crate::sweep::Axis;
use crate::workloads::{Downloads, Workload};

const FILE: Set = Set::Files {
    name: "ssbt",
    count: 1,
    len_bytes: 500_000_000,
};

/// The cost of copying into user space and back, after SSBT's SMR.
pub fn experiment() -> Experiment {
    let sized = "listen sndbuf={buffer_kb}k";
    let nginx = Contender::preset("nginx");
    let copying = Contender {
        options: vec!["sendfile off".into(), "output_buffers 1 256k".into()],
        ..nginx.clone()
    };
    Experiment {
        name: "sendfile",
        title: "sendfile beside read and write, over the socket buffer",
        asks: "A 500 MB file that is in memory goes over one loopback connection, by nginx with sendfile and by nginx that \
            reads into its memory and writes from it. The paper saves one of the two copies (SMR) and gains up to 30 %; \
            sendfile, which every kernel has now, saves both. The size is what SO_SNDBUF is asked for; Linux doubles it \
            and leaves half to its own records.",
        source: "SSBT, Figure 11",
        contenders: vec![
            nginx.with("sendfile", &[sized]),
            copying.with("read+write", &[sized]),
        ],
        subjects: &["sendfile"],
        sweep: vec![
            Axis::new(
                "buffer_kb",
                "socket buffer KB",
                &[16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0],
            )
            .quick(&[16.0, 64.0, 256.0, 1024.0])
            .logarithmic(),
        ],
        pace: Pace {
            rounds: 7,
            rounds_quick: 3,
            warm_up_s: 0.3,
            window_s: 1.5,
            window_quick_s: 0.7,
        },
        scenario: |_| Scenario {
            place: Place::memory(&[FILE]),
            workload: Workload::Downloads(Downloads {
                of: FILE,
                connections: 1,
                visitor: None,
                sample_queues: false,
            }),
        },
        judged: vec![
            Judge::against("goodput_bytes_per_s", &["read+write"], Limit::None),
            Judge::against("cpu_s_per_gb", &["read+write"], Limit::None),
        ],
        figures: vec![
            Figure::over(
                "buffer_kb",
                "goodput_bytes_per_s",
                "Throughput (the paper's axes)",
            ),
            Figure::over("buffer_kb", "cpu_s_per_gb", "CPU time of the server"),
        ],
    }
}
