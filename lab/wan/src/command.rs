//! `ackpace-lab wan`: the command line of the emulator.

use super::counters::Counters;
use super::daemon::{self, Request};
use super::namespace::Namespace;
use super::plan;
use super::table::table;
use super::topology::LinkSpec;
use ackpace_lab_base::error::{Doing, LabError, Result};
use clap::Subcommand;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

/// Options of `ackpace-lab wan`.
#[derive(Debug, clap::Args)]
#[command(arg_required_else_help = true)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Build a WAN from a topology file; it stays until `down` or the end of its process
    Up {
        /// Name for the other commands
        name: String,
        /// Its links and paths, see docs/lab.md
        topology: PathBuf,
    },
    /// Take a WAN down
    Down {
        /// Its name
        name: String,
    },
    /// Change a link while it runs: unnamed values stay; a rate or loss of 0 removes it
    Set {
        /// Name of the WAN
        name: String,
        /// A shared link, or a path with its direction: "home down", "home/10.1.0.7 up"
        link: String,
        /// As in the topology: rate_mbit_per_s=50.0 delay_ms=3.0 loss=0.01
        #[arg(required = true, value_name = "KEY=VALUE")]
        changes: Vec<String>,
    },
    /// Show counters of all paths and links
    Show {
        /// Its name
        name: String,
        /// All of them, as JSON
        #[arg(long)]
        json: bool,
    },
    /// Run a command in the namespace of the servers or of the clients
    Exec {
        /// Name of the WAN
        name: String,
        /// Which end
        side: End,
        /// The command with its arguments
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        command: Vec<String>,
    },
    /// The background process of `up`
    #[command(hide = true)]
    Serve {
        /// Name for the other commands
        name: String,
        /// Its links and paths
        topology: PathBuf,
    },
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum End {
    Server,
    Client,
}

/// Runs the given action. Exit code 1: a check missed a requirement.
///
/// # Errors
/// Missing root, a WAN that is not up, an invalid topology or change, or the error that the background process
/// reports.
pub fn run(args: &Args) -> Result<ExitCode> {
    match &args.action {
        Action::Up { name, topology } => {
            needs_root()?;
            plan::read(topology)?; // report its errors here, not in the background
            daemon::start(name, topology)?;
            println!("{name} is up; ackpace-lab wan exec {name} server|client COMMAND runs inside");
        }
        Action::Down { name } => {
            daemon::ask(name, &Request::Down)?;
        }
        Action::Set {
            name,
            link,
            changes,
        } => {
            let change: LinkSpec = toml::from_str(&changes.join("\n"))
                .map_err(|error| LabError::Setup(error.to_string().trim_end().to_owned()))?;
            let (link, change) = (link.clone(), Box::new(change));
            daemon::ask(name, &Request::Set { link, change })?;
        }
        Action::Show { name, json } => show(name, *json)?,
        Action::Exec {
            name,
            side,
            command,
        } => exec(name, *side, command)?,
        Action::Serve { name, topology } => daemon::serve(name, topology)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn needs_root() -> Result<()> {
    if rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let what = "network namespaces and TUN devices need root: sudo ackpace-lab wan ...";
    Err(LabError::Setup(what.into()))
}

fn show(name: &str, json: bool) -> Result<()> {
    let about = daemon::ask(name, &Request::Show)?;
    if json {
        let text = serde_json::to_string_pretty(&about).doing(|| "counters".into())?;
        println!("{text}");
        return Ok(());
    }
    println!("server {}\nclient {}\n", about.server, about.client);
    print!("{}", shown(&about.counters));
    Ok(())
}

fn shown(counters: &Counters) -> String {
    let mut rows = Vec::new();
    for path in &counters.paths {
        for (way, totals) in [("down", path.down), ("up", path.up)] {
            let of = [
                totals.entered_packets,
                totals.delivered_packets,
                totals.delivered_bytes,
                totals.dropped_full_packets,
                totals.dropped_red_packets,
                totals.lost_packets,
                totals.marked_packets,
            ];
            let mut row = vec![path.name.clone(), way.to_owned()];
            row.extend(of.map(|count| count.to_string()));
            rows.push(row);
        }
    }
    let head = [
        "path", "way", "packets", "arrived", "bytes", "full", "red", "lost", "marked",
    ];
    let mut text = table(&head, &rows);
    let links = counters.links.iter().filter(|link| link.busy_us > 0);
    let rows: Vec<Vec<String>> = links
        .map(|link| {
            let of = [link.busy_us / 1000, link.idle_us / 1000, link.queue_bytes];
            let mut row = vec![link.name.clone()];
            row.extend(of.map(|count| count.to_string()));
            row
        })
        .collect();
    text += "\n";
    text += &table(
        &["link with a rate", "busy ms", "idle ms", "queue bytes"],
        &rows,
    );
    let (strays, late) = (counters.strays, counters.lateness);
    text + &format!(
        "\nlate by {:.0} us on average, {} at most; of no path {}, malformed {}, refused {}, overruns {} + {}\n",
        late.mean_us(),
        late.max_ns / 1000,
        strays.no_path,
        strays.malformed,
        counters.refused,
        counters.overruns[0],
        counters.overruns[1],
    )
}

fn exec(name: &str, side: End, words: &[String]) -> Result<()> {
    let about = daemon::ask(name, &Request::Show)?;
    let path = match side {
        End::Server => about.server,
        End::Client => about.client,
    };
    let namespace = Namespace::open(&path)?;
    let Some((program, arguments)) = words.split_first() else {
        return Ok(()); // clap requires at least one
    };
    let mut command = Command::new(program);
    command.args(arguments);
    namespace.enter_before_exec(&mut command);
    Err(command.exec()).doing(|| program.clone())
}
