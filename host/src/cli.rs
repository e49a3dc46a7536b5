//! The commands of the binary; errors are printed in one place.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser;

use crate::handoff::switch::Settings;
use crate::options::{Ask, Command, Options, Tune};
use crate::place::Place;
use crate::tally::Tally;
use crate::{doctor, files, gateway, handoff, passes, status, tune};
use ackpace_host_base::failure::Failure;
use ackpace_host_base::lines::{Lines, To};
use ackpace_host_base::tell;

/// Runs one command line, whose first argument is the name of the program. The exit code: 0 done, 1 failed at run time, 2
/// wrong command line or something that the operator has to mend.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    match run(arguments) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(failure) => {
            match &failure {
                Failure::Usage(error) => _ = error.print(),
                _ => Lines::new().write(To::Errors, format!("ackpace-host: {failure}")),
            }
            ExitCode::from(failure.exit_code())
        }
    }
}

/// `false`: it ran, and found something wrong.
fn run(arguments: impl IntoIterator<Item = OsString>) -> Result<bool, Failure> {
    let done = match Options::try_parse_from(arguments)?.command {
        Command::Doctor {
            about,
            json,
            vip,
            peer,
            device,
        } => {
            let settings = Settings {
                vips: vip,
                peers: peer,
                devices: device,
                ..Settings::default()
            };
            return Ok(doctor::run(about, &settings, json));
        }
        Command::Tune(Tune {
            ask: Some(Ask::Status { json, metrics }),
            ..
        }) => shown(json, metrics),
        Command::Tune(options) if options.restore => tune::restore(),
        Command::Tune(options) => tune::run(&options),
        Command::Passes => passes::serve(),
        Command::Handoff(options) => handoff::run(&options),
        Command::Gateway(options) => gateway::run(&options),
        Command::GatewayAnswer { supervisor } => gateway::answer(supervisor),
        Command::GatewayStep(step) => gateway::step(&step),
        Command::Files(options) => files::run(&options),
        Command::Receive(command) => ackpace_receive::run(&command),
    };
    done.map(|()| true)
}

fn shown(json: bool, metrics: bool) -> Result<(), Failure> {
    let question = if metrics { "metrics" } else { "status" };
    let answer = status::ask(&Place::here()?.socket, question)?;
    if json || metrics {
        tell!("{}", answer.trim_end());
        return Ok(());
    }
    let tally: Tally = serde_json::from_str(&answer).map_err(|error| {
        Failure::runtime(format!(
            "the instance that runs is another version's: {error}"
        ))
    })?;
    tell!("{}", tally.page().trim_end());
    Ok(())
}
