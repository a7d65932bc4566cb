//! The router's index beside those of Dynamo's router and of `kv-index`: the same events, the same
//! prompts, one run. See README.md beside this crate's manifest.

mod cell;
mod contender;
mod counting;
mod figures;
mod fleet;
mod floor;
mod options;
mod replay;
mod report;
mod workload;

use std::fs;
use std::time::Instant;

use anyhow::{Context, Result};
use clap::Parser;

use contender::FleetShape;
use options::Options;
use workload::Workload;

#[global_allocator]
static ALLOCATOR: counting::Counting = counting::Counting;

fn main() -> Result<()> {
    let options = Options::parse();
    let mut cells = Vec::new();
    for &source in &options.workload {
        let opened = Workload::open(source, &options.data, options.seed)?;
        let Some(workload) = opened else {
            eprintln!(
                "skipped {}: its trace is not in {}",
                source.name(),
                options.data.display()
            );
            continue;
        };
        for &block_size in &options.block_size {
            for &replicas in &options.replicas {
                let fleet = FleetShape {
                    replicas,
                    block_size,
                };
                let start = Instant::now();
                cells.push(cell::measure(&workload, fleet, &options)?);
                let (name, took) = (workload.name, start.elapsed().as_secs_f64());
                eprintln!("{name}, {block_size} tokens, {replicas} replicas: {took:.1} s");
            }
        }
    }
    println!("{}", report::markdown(&cells));
    if let Some(path) = &options.json {
        let arguments: Vec<String> = std::env::args().skip(1).collect();
        let record = serde_json::json!({ "arguments": arguments, "cells": cells });
        let text = serde_json::to_string_pretty(&record)?;
        let unwritten = || format!("{} cannot be written", path.display());
        fs::write(path, text).with_context(unwritten)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
