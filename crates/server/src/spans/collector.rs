//! Export of spans to a collector that takes OTLP over HTTP.

use std::time::{Duration, SystemTime};

use headstart_core::Nanos;
use opentelemetry::KeyValue;
use opentelemetry::trace::TracerProvider;
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider};

use headstart_index_sync::clock::Clock;

/// Path for traces at the collector's address.
const PATH: &str = "/v1/traces";

/// Longest wait for a collector, per batch and at the end.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Sends spans to a collector, on a thread of its own. What a slow or absent collector does not
/// take is dropped beyond the 2,048 spans of the library's queue; no request waits for it.
#[derive(Debug)]
pub struct Spans {
    provider: SdkTracerProvider,
    pub(super) tracer: SdkTracer,
    clock: Clock,
    /// Wall time at which the clock said `then`.
    start: SystemTime,
    then: Nanos,
}

/// Why no spans can be sent.
#[derive(Debug, thiserror::Error)]
pub enum SpansError {
    /// The address is invalid.
    #[error(
        "--otlp {0}: expected a collector's address such as http://127.0.0.1:4318 (OTLP over HTTP, \
         without TLS; run a collector beside the server to send elsewhere)"
    )]
    Address(String),
    /// The exporter could not be made.
    #[error("--otlp: {0}")]
    Exporter(#[from] opentelemetry_otlp::ExporterBuildError),
}

impl Spans {
    /// To the collector at `address`, `http://host:port`. How many traces are sampled is said by
    /// the standard's `OTEL_TRACES_SAMPLER`; all of them where it is not set.
    ///
    /// # Errors
    /// When the address is invalid.
    pub fn to(address: &str, clock: Clock) -> Result<Self, SpansError> {
        let host = address.strip_prefix("http://").unwrap_or_default();
        let is_host = !host.trim_end_matches('/').is_empty() && !host.contains(char::is_whitespace);
        if !is_host || address.parse::<http::Uri>().is_err() {
            return Err(SpansError::Address(address.to_owned()));
        }
        // The HTTP client asks for it even where it never speaks TLS. The first caller sets it.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let base = address.trim_end_matches('/');
        let endpoint = if base.ends_with(PATH) { base.to_owned() } else { format!("{base}{PATH}") };
        let exporter = SpanExporter::builder()
            .with_http()
            .with_protocol(Protocol::HttpBinary)
            .with_endpoint(endpoint)
            .with_timeout(TIMEOUT)
            .build()?;
        let service = Resource::builder()
            .with_service_name("headstart")
            .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
            .build();
        let provider = SdkTracerProvider::builder()
            .with_batch_exporter(exporter)
            .with_resource(service)
            .build();
        Ok(Self {
            tracer: provider.tracer("headstart"),
            provider,
            clock,
            start: SystemTime::now(),
            then: clock.now(),
        })
    }

    /// Sends what waits, and ends. Blocks for as long as a collector may take.
    pub fn shutdown(&self) {
        if let Err(error) = self.provider.shutdown_with_timeout(TIMEOUT) {
            tracing::warn!(%error, "the last spans were not sent");
        }
    }

    /// The time now.
    pub(super) fn now(&self) -> Nanos {
        self.clock.now()
    }

    /// A time of the server's clock as wall time.
    pub(super) fn wall(&self, at: Nanos) -> SystemTime {
        // Counted from one reading of the wall clock, so that a step of it does not distort spans.
        if at >= self.then {
            self.start + at.since(self.then)
        } else {
            self.start - self.then.since(at)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_checked() {
        for wrong in ["", "127.0.0.1:4318", "https://collector", "http://", "http:// x"] {
            let error = Spans::to(wrong, Clock::start()).expect_err(wrong);
            assert!(error.to_string().contains("http://127.0.0.1:4318"), "{error}");
        }
    }

    #[test]
    fn times_keep_their_distances() {
        let clock = Clock::start();
        let spans = Spans::to("http://127.0.0.1:9", clock).expect("an address");
        let (early, late) = (clock.ago(Duration::from_secs(9)), clock.now());
        let apart = spans.wall(late).duration_since(spans.wall(early));
        let apart = apart.expect("in order").as_secs_f64();
        assert!((9.0..10.0).contains(&apart), "{apart}");
    }
}
