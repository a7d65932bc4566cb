//! Observers, which are notified of requests and have no say in them.

use std::sync::Arc;

use headstart_index_sync::clock::Clock;

use crate::config::{EngineBackend, ServeConfig};
use crate::insight::Insight;
use crate::metrics::Metrics;
use crate::serve_error::ServeError;
use crate::shadow::Shadow;
use crate::spans::Spans;

/// All who look on, as far as they were asked for.
#[derive(Default)]
pub struct Observers {
    /// Exporter of request spans.
    pub spans: Option<Arc<Spans>>,
    /// Explanations of requests.
    pub insight: Option<Arc<Insight>>,
    /// Shadow mode, which simulates other fleets.
    pub shadow: Option<Arc<Shadow>>,
}

impl Observers {
    /// As the configuration asks for.
    ///
    /// # Errors
    /// When one of them cannot be, saying why.
    pub fn start(config: &ServeConfig, clock: Clock) -> Result<Self, ServeError> {
        let collector = config.otlp.as_deref();
        let spans = collector.map(|address| Spans::to(address, clock)).transpose()?;
        let shadow = config.shadow.as_ref().map(Shadow::start).transpose()?;
        Ok(Self { spans: spans.map(Arc::new), insight: None, shadow: shadow.map(Arc::new) })
    }

    /// Explains requests from now on, where a secret for that is given.
    pub fn explain(&mut self, secret: Option<u64>, metrics: &Metrics) {
        let insight = |secret| Arc::new(Insight::new(secret, metrics.with_insight()));
        self.insight = secret.map(insight);
    }

    /// Lets them finish. Blocks for some seconds at most.
    pub fn stop(&self) {
        if let Some(spans) = &self.spans {
            spans.shutdown();
        }
    }
}

/// Refuses shadow fleets beside engines that they cannot be compared with.
pub(crate) fn check_shadow(config: &ServeConfig) -> Result<(), ServeError> {
    match &config.backend {
        _ if config.shadow.is_none() => Ok(()),
        EngineBackend::Upstreams(upstreams) if upstreams.len() == 1 => match upstreams[0].tokenizer
        {
            Some(_) => Ok(()),
            None => Err(ServeError::Shadow("its --upstream needs tokenizer=FOLDER")),
        },
        _ => Err(ServeError::Shadow(
            "it plays beside one --upstream, which may be a balancer before many engines",
        )),
    }
}
