//! The answer if a server in a sandbox cannot be shown: a small page for browsers, which tries again by itself where that helps,
//! and an error body for programs.

use axum::body::Body;
use axum::response::{IntoResponse as _, Response};
use hyper::header::{
    ACCEPT, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER,
};
use shared_protocol::ErrorCode;

use crate::api::error::ApiError;

/// How often the page of a server that is not up yet tries again.
const RETRY_SECONDS: &str = "2";

/// Whether a request is a browser's, which shows the answer as a page.
pub fn wants_page(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    accepted
        .flat_map(|text| text.split(','))
        .any(|kind| kind.split(';').next().unwrap_or_default().trim() == "text/html")
}

/// The answer for an error.
pub fn refusal(error: ApiError, wants_page: bool) -> Response {
    let reloads = error.0.error_code == ErrorCode::PortClosed;
    let message = error.0.message.clone();
    let mut response = error.into_response();
    if reloads {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static(RETRY_SECONDS));
    }
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if !wants_page {
        return response;
    }
    let status = response.status();
    let page = page(status.as_u16(), &message, reloads);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static("default-src 'none'; style-src 'unsafe-inline'"));
    headers.remove(hyper::header::CONTENT_LENGTH);
    response.map(|_| Body::from(page))
}

fn page(status: u16, message: &str, reloads: bool) -> String {
    let (refresh, hint) = if reloads {
        (
            format!("<meta http-equiv=\"refresh\" content=\"{RETRY_SECONDS}\">\n"),
            "<p>This page tries again every two seconds.</p>\n",
        )
    } else {
        (String::new(), "")
    };
    let message = escaped(message);
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" \
         content=\"width=device-width\">\n{refresh}<title>{status}: {message}</title>\n<style>body {{ font: 16px/1.5 \
         system-ui, sans-serif; max-width: 40em; margin: 15vh auto; padding: 0 1em; color-scheme: light dark }}</style>\n\
         </head>\n<body>\n<h1>{message}</h1>\n{hint}</body>\n</html>\n"
    )
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_browser_gets_a_page() {
        let wants = |accept: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT, HeaderValue::from_static(accept));
            wants_page(&headers)
        };
        assert!(wants("text/html,application/xhtml+xml;q=0.9,*/*;q=0.8"));
        for program in ["*/*", "application/json", "text/htmlx", ""] {
            assert!(!wants(program), "{program}");
        }
        assert!(!wants_page(&HeaderMap::new()));
    }

    #[test]
    fn a_page_shows_text_as_text_and_reloads_only_where_that_helps() {
        let shown = page(502, "<script>alert(1)</script>", true);
        assert!(!shown.contains("<script") && shown.contains("http-equiv=\"refresh\""), "{shown}");
        assert!(!page(401, "the link has expired", false).contains("refresh"));
    }
}
