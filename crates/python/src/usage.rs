//! A request that uses cached blocks, as Python describes it.

use headstart_core::{Access, FinishKind, Nanos, Probability, SessionId, ToolClass};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// A request that uses cached blocks, as far as it is known.
///
/// `now` is in nanoseconds from any origin, and never falls from one call to the next. `turn`
/// counts user messages from 1; `kind` and `session` number the kinds of requests and the
/// conversations; `finish` is `tool_calls`, `stop`, `length` or `cancelled`; `tools` are the names
/// of the tools that the answer calls; `p_continue` is a predicted probability that the
/// conversation continues.
///
/// Raises `ValueError` for a probability that is not from 0 to 1.
#[pyclass(module = "headstart._native", frozen)]
pub(crate) struct Use(pub(crate) Access);

#[pymethods]
impl Use {
    #[new]
    #[pyo3(signature = (now, *, turn = 0, kind = 0, session = None, finish = None,
                        tools = Vec::new(), output_tokens = None, p_continue = None))]
    #[expect(clippy::too_many_arguments, reason = "keyword arguments of Python")]
    fn new(
        now: u64,
        turn: u16,
        kind: u16,
        session: Option<u64>,
        finish: Option<&str>,
        tools: Vec<String>,
        output_tokens: Option<u32>,
        p_continue: Option<f64>,
    ) -> PyResult<Self> {
        let p_continue = match p_continue.map(Probability::new) {
            Some(None) => return Err(PyValueError::new_err("p_continue: a number from 0 to 1")),
            Some(known) => known,
            None => None,
        };
        Ok(Self(Access {
            turn,
            request_type: kind,
            session: session.map(SessionId),
            finish: finish.map_or(FinishKind::default(), FinishKind::from_reason),
            tool: ToolClass::of_names(tools.iter().map(String::as_str)),
            output_tokens,
            p_continue,
            ..Access::at(Nanos(now))
        }))
    }

    /// The time, nanoseconds.
    #[getter]
    fn now(&self) -> u64 {
        self.0.now.0
    }

    /// User messages up to this request, from 1; 0 where that is unknown.
    #[getter]
    fn turn(&self) -> u16 {
        self.0.turn
    }

    /// The kind of request, a number.
    #[getter]
    fn kind(&self) -> u16 {
        self.0.request_type
    }

    /// The conversation, a number; `None` where that is unknown.
    #[getter]
    fn session(&self) -> Option<u64> {
        self.0.session.map(|session| session.0)
    }

    /// Tokens of the answer; `None` where they are unknown.
    #[getter]
    fn output_tokens(&self) -> Option<u32> {
        self.0.output_tokens
    }

    /// The predicted probability that the conversation continues, if there is one.
    #[getter]
    fn p_continue(&self) -> Option<f64> {
        self.0.p_continue.map(Probability::value)
    }

    fn __repr__(&self) -> String {
        let Access { now, turn, request_type, .. } = self.0;
        format!("Use(now={}, turn={turn}, kind={request_type})", now.0)
    }
}
