//! Tests of the API as a client sees it: every route over a fake runtime (`routes_test`), the calls against the real runner
//! (`live_test`, on `live`), that an invalid request touches nothing (`untouched_test`), the Model Context Protocol
//! (`mcp_test`), and that one caller does not see what
//! another owns (`owners_test`).

mod live;
mod live_test;
mod mcp_test;
mod owners_test;
mod routes_test;
mod untouched_test;
