//! A disk tier beside fio, foyer and memcpy: the same bytes, the same disk, one run. See README.md
//! beside this crate's manifest.

mod clock;
mod figures;
mod fio;
mod foyer_cache;
mod machine;
mod memory;
mod options;
mod ours;
mod payload;
#[cfg(test)]
#[path = "../../../crates/store/tests/suite/reference.rs"]
mod reference;
mod report;
mod subject;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result};

use figures::Figures;
use foyer_cache::Foyer;
use machine::Machine;
use options::{Entrant, FioBuffers, FoyerIo, Options};
use ours::Ours;
use subject::Load;

/// A step of a round.
#[derive(Clone, Copy, Debug)]
enum Step {
    Fio { buffers: FioBuffers },
    Ours { kib: usize },
    Foyer { io: FoyerIo, kib: usize },
    Memory,
}

fn main() -> Result<()> {
    let options = Options::resolved()?;
    let has = |entrant| options.only.contains(&entrant);
    let fio = has(Entrant::Fio).then(fio::version).transpose()?;
    let scratch = Scratch::new(&options.dir)?;
    let machine = Machine::of(&scratch.dir, fio)?;
    let mut figures = Figures::default();
    let steps = steps(&options);
    for round in 0..options.rounds {
        let mut steps = steps.clone();
        // Each round begins with another one, so that none always comes first.
        let first = round % steps.len().max(1);
        steps.rotate_left(first);
        for step in steps {
            let start = Instant::now();
            measure(step, &options, round, (&scratch.dir, &mut figures))
                .with_context(|| format!("{step:?} in round {}", round + 1))?;
            let took = start.elapsed().as_secs_f64();
            eprintln!(
                "round {} of {}, {step:?}: {took:.1} s",
                round + 1,
                options.rounds
            );
        }
    }
    println!("{}", report::markdown(&options, &machine, &figures));
    if let Some(path) = &options.json {
        let arguments: Vec<String> = std::env::args().skip(1).collect();
        let record = serde_json::json!({
            "arguments": arguments,
            "machine": machine,
            "series": figures.series,
        });
        let text = serde_json::to_string_pretty(&record)?;
        let unwritten = || format!("{} cannot be written", path.display());
        fs::write(path, text).with_context(unwritten)?;
    }
    Ok(())
}

fn steps(options: &Options) -> Vec<Step> {
    let mut steps = Vec::new();
    for entrant in &options.only {
        match entrant {
            Entrant::Fio => {
                let all = options.fio_buffers.iter();
                steps.extend(all.map(|&buffers| Step::Fio { buffers }));
            }
            Entrant::Memory => steps.push(Step::Memory),
            Entrant::Ours => {
                steps.extend(options.record_kib.iter().map(|&kib| Step::Ours { kib }));
            }
            Entrant::Foyer => {
                let of = |&kib| {
                    options
                        .foyer_io
                        .iter()
                        .map(move |&io| Step::Foyer { io, kib })
                };
                steps.extend(options.record_kib.iter().flat_map(of));
            }
        }
    }
    steps
}

/// One step of round number `round`, in a folder of its own.
fn measure(
    step: Step,
    options: &Options,
    round: usize,
    (dir, figures): (&Path, &mut Figures),
) -> Result<()> {
    match step {
        Step::Fio { buffers } => {
            let dir = &dir.join("fio");
            let run = fio::Run {
                options,
                dir,
                buffers,
                round,
            };
            fio::measure(&run, figures)
        }
        Step::Memory => memory::measure(options, figures),
        Step::Ours { kib } => {
            let load = Arc::new(Load::new(options, kib, round));
            let open = |dir: &Path, load: &Arc<Load>| Ours::open(options, dir, load);
            subject::measure(&open, &dir.join("ours"), &load, figures)
        }
        Step::Foyer { io, kib } => {
            let load = Arc::new(Load::new(options, kib, round));
            let open = |dir: &Path, load: &Arc<Load>| Foyer::open(options, io, dir, load);
            subject::measure(&open, &dir.join("foyer"), &load, figures)
        }
    }
}

/// A folder of our own, deleted with all that is in it.
struct Scratch {
    dir: PathBuf,
}

impl Scratch {
    fn new(parent: &Path) -> Result<Self> {
        let dir = parent.join(format!("headstart-bench-tiers-{}", std::process::id()));
        let uncreated = || format!("{} cannot be created", dir.display());
        fs::create_dir_all(&dir).with_context(uncreated)?;
        Ok(Self { dir })
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.dir) {
            eprintln!("{} is left: {error}", self.dir.display());
        }
    }
}
