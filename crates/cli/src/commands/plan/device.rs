//! Description of the device: KV bytes per token, memory and compute cost.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail, ensure};
use clap::Args;
use headstart_core::EngineModel;
use headstart_core::cost::roofline::{Gpu, ModelShape};
use headstart_sim::wild::WildModel;

use crate::config::{cost_model, kv_bytes};
use crate::exit::usage;

/// Default GPU for roofs. The ATC'25 study's A800 computes as an A100.
const GPU: &str = "a100";

/// PCIe 4 with 16 lanes, half of it reached, bytes a second.
const HOST_BYTES_PER_S: f64 = 16e9;

const GIB: f64 = (1_u64 << 30) as f64;

/// A model and its engine.
#[derive(Args, Debug)]
#[command(next_help_heading = "Device")]
pub(super) struct DeviceOptions {
    /// Model name, model folder or config.json
    ///
    /// Names: qwen2-7b, llama2-13b, llama3-70b, and those of `calibrate --derive`. A folder needs
    /// --device-gib or --cost-model.
    #[arg(long, value_name = "NAME|PATH")]
    model: String,
    /// Type of the KV cache, for a folder [default: of the model]
    ///
    /// f32, f16, bf16, fp8 or int8. A model by name has two bytes per value.
    #[arg(long, value_name = "DTYPE")]
    kv_dtype: Option<String>,
    /// GPU, for a model by name [default: a100]
    ///
    /// l4, l40s, a100, h100, h200, b200 or mi300x.
    #[arg(long, value_name = "NAME", conflicts_with = "cost_model")]
    gpu: Option<String>,
    /// Tensor-parallel GPUs, for a model by name [default: by model]
    ///
    /// As in the ATC'25 study for its three models, otherwise 1.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64),
        conflicts_with = "cost_model")]
    gpus: Option<u32>,
    /// Device memory for KV, GiB [default: memory minus weights]
    #[arg(long, value_name = "GIB")]
    device_gib: Option<f64>,
    /// Cost model of the engine [default: from data sheets]
    ///
    /// `headstart calibrate` writes such a file.
    #[arg(long, value_name = "FILE")]
    cost_model: Option<PathBuf>,
}

/// The device, checked.
#[derive(Debug)]
pub(super) struct Device {
    /// Description of the device, one sentence.
    pub(super) told: String,
    pub(super) token_bytes: f64,
    /// Tokens whose keys and values fit.
    pub(super) kv_tokens: f64,
    /// Cost model of the engine, if known.
    pub(super) engine: Option<EngineModel>,
    /// Default bandwidth of host memory, bytes per second.
    pub(super) host_bytes_per_s: f64,
}

/// The model of the plan, as far as the options name it.
struct PlannedModel {
    told: String,
    token_bytes: f64,
    engine: Option<EngineModel>,
}

impl DeviceOptions {
    /// # Errors
    /// When there is no such model, or no option says how much fits the device.
    pub(super) fn device(&self) -> Result<Device> {
        let mut named = match self.by_name()? {
            Some(named) => named,
            None => self.by_path()?,
        };
        if let Some(file) = &self.cost_model {
            named.engine = Some(cost_model::read(file)?.engine);
            named.told += &format!(", costs by {}", shown(file));
        }
        let kv_tokens = match (self.device_gib, &named.engine) {
            // Infinity passes the parser of numbers, so it is refused here.
            (Some(gib), _) if gib > 0.0 && gib.is_finite() => gib * GIB / named.token_bytes,
            (Some(gib), _) => {
                bail!(usage(format!("--device-gib {gib:?}: expected a size above 0")));
            }
            (None, Some(engine)) => engine.kv_tokens as f64,
            (None, None) => bail!(usage(
                "--model: a folder does not say how much memory its weights leave; give \
                 --device-gib, or --cost-model"
            )),
        };
        // A cost model may leave loading out, which is then zero.
        let loads = named.engine.map(|engine| engine.load_token_s);
        let host_bytes_per_s = match loads.filter(|&load_s| load_s > 0.0) {
            Some(load_s) => named.token_bytes / load_s,
            None => HOST_BYTES_PER_S,
        };
        Ok(Device {
            told: named.told,
            token_bytes: named.token_bytes,
            kv_tokens,
            engine: named.engine,
            host_bytes_per_s,
        })
    }

    fn by_name(&self) -> Result<Option<PlannedModel>> {
        let name = self.model.to_lowercase();
        let wild = WildModel::find(&name);
        let shape = wild.map(|model| model.shape).or_else(|| ModelShape::find(&name));
        let Some(shape) = shape else { return Ok(None) };
        ensure!(
            self.kv_dtype.is_none(),
            usage("--kv-dtype needs a model folder; a model by name has two bytes per value")
        );
        let gpus = self.gpus.unwrap_or(wild.map_or(1, |model| model.gpus));
        let gpu = self.gpu.as_deref().unwrap_or(GPU).to_lowercase();
        let Some(known) = Gpu::find(&gpu) else {
            let names = Gpu::KNOWN.map(|gpu| gpu.name).join(", ");
            bail!(usage(format!("--gpu {gpu}: known are {names}")));
        };
        // With a cost model no data sheet is needed, so the weights need not fit a GPU.
        if self.cost_model.is_some() {
            return Ok(Some(PlannedModel {
                told: name,
                token_bytes: shape.kv_token_bytes(),
                engine: None,
            }));
        }
        let Some(mut engine) = EngineModel::derived(&shape, &known, gpus) else {
            bail!(usage(format!("--gpus {gpus}: the weights of {name} alone fill {gpus} {gpu}")));
        };
        // The study measured loading on its own machines; elsewhere the data sheet counts.
        let study = wild.filter(|model| model.gpus == gpus && gpu == GPU);
        engine.load_token_s =
            study.map_or(engine.load_token_s, |model| model.engine().load_token_s);
        Ok(Some(PlannedModel {
            told: match self.gpu {
                Some(_) => format!("{name} on {gpus} {gpu}, by the data sheets"),
                None => format!("{name} on {gpus} {gpu} (default; --gpu), by the data sheets"),
            },
            token_bytes: shape.kv_token_bytes(),
            engine: Some(engine),
        }))
    }

    fn by_path(&self) -> Result<PlannedModel> {
        let path = Path::new(&self.model);
        if !path.exists() {
            let wild = WildModel::ALL.map(|model| model.shape.name);
            let known = ModelShape::KNOWN.map(|shape| shape.name);
            let names = [&wild[..], &known[..]].concat().join(", ");
            bail!(usage(format!("--model {}: no such folder; known are {names}", self.model)));
        }
        // No data sheet gives the cost of a folder's model, so GPUs would change nothing.
        if self.gpu.is_some() || self.gpus.is_some() {
            bail!(usage("--gpu and --gpus need a model by name; for a folder give --device-gib"));
        }
        let kv = kv_bytes(Some(path), self.kv_dtype.as_deref())?.expect("of a path");
        Ok(PlannedModel {
            told: format!("{} ({})", shown(path), kv.shape),
            token_bytes: kv.per_token as f64,
            engine: None,
        })
    }
}

/// Returns a file's name without its folder, which stays private.
fn shown(file: &Path) -> String {
    let name = file.file_name().unwrap_or(file.as_os_str());
    name.to_string_lossy().into_owned()
}
