//! What each request of an MCP client means: the library takes messages apart, and this answers them by use cases of the service.
//!
//! A request acts for the caller of its own HTTP request, and not for the one who opened the MCP session: a key that was made anew
//! under an old name has its own role.
#![expect(deprecated, reason = "clients of the versions with sessions still set a level of logging")]

use std::borrow::Cow;
use std::sync::Arc;

use hyper::http::request::Parts;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, ErrorData, Extensions, GetPromptRequestParams, GetPromptResponse,
    Implementation, ListPromptsResult, ListResourceTemplatesResult, ListResourcesResult, ListToolsResult,
    PaginatedRequestParams, ProtocolVersion, ReadResourceRequestParams, ReadResourceResponse, ServerCapabilities,
    ServerConfig, SetLevelRequestParams, Tool,
};
use rmcp::service::RequestContext;
use rmcp::{RoleServer, ServerHandler};

use super::sandbox::Sandbox;
use super::sessions::Presence;
use super::{prompts, resources, tools};
use crate::service::tools::LinkUrl;
use crate::service::{Caller, Service};

/// What a model reads before its first call.
const INSTRUCTIONS: &str = "\
You have a Linux computer of your own: a sandbox with a persistent bash. What you do in it stays from one call to the next: the \
directory, variables, files and background jobs. Your files are in /workspace, and relative paths start there. It is \
apart from the user's machine, so try things out. The network may be closed or limited to package registries; a reply says what was \
denied. Output that is too long is shortened in the middle; ask for the part you need. The sandbox ends with this connection, \
unless the user chose one that stays.";

/// The answers of one MCP session.
#[derive(Clone)]
pub struct Handler {
    service: Service,
    link_url: LinkUrl,
    sandbox: Arc<Sandbox>,
    presence: Arc<Presence>,
}

impl Handler {
    pub fn new(service: Service, link_url: LinkUrl, sandbox: Arc<Sandbox>, presence: Arc<Presence>) -> Self {
        Self { service, link_url, sandbox, presence }
    }
}

/// The caller of a request, as the gate attached it.
fn caller(extensions: &Extensions) -> Result<Caller, ErrorData> {
    let caller = extensions.get::<Parts>().and_then(|parts| parts.extensions.get::<Caller>());
    caller.cloned().ok_or_else(|| ErrorData::internal_error("the request has no caller", None))
}

impl ServerHandler for Handler {
    fn get_info(&self) -> ServerConfig {
        let capabilities =
            ServerCapabilities::builder().enable_tools().enable_resources().enable_prompts().enable_logging().build();
        let about = Implementation::new("cove", env!("CARGO_PKG_VERSION")).with_title("Cove");
        ServerConfig::new(capabilities).with_server_info(about).with_instructions(INSTRUCTIONS)
    }

    /// The versions since 2026-07-28 have no sessions: every request stands alone. Then only a session that exists already can be
    /// the same sandbox for all of them.
    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        Cow::Borrowed(match self.sandbox.is_fixed() {
            true => ProtocolVersion::KNOWN_VERSIONS,
            false => ProtocolVersion::known_up_to(&ProtocolVersion::LATEST_WITH_INITIALIZE),
        })
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(tools::all()))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        tools::named(name)
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let _held = self.presence.hold();
        let caller = caller(&context.extensions)?;
        let place = tools::Place { service: &self.service, link_url: &self.link_url, sandbox: &self.sandbox };
        Ok(tools::call(place, &caller, request, context).await?.into())
    }

    async fn list_resources(
        &self,
        _: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let caller = caller(&context.extensions)?;
        let listed = resources::list(&self.service, &caller, &self.sandbox).await?;
        Ok(ListResourcesResult::with_all_items(listed))
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        Ok(ListResourceTemplatesResult::with_all_items(resources::templates()))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let _held = self.presence.hold();
        let caller = caller(&context.extensions)?;
        Ok(resources::read(&self.service, &caller, &self.sandbox, &request.uri).await?.into())
    }

    async fn list_prompts(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        Ok(ListPromptsResult::with_all_items(prompts::all()))
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        Ok(prompts::get(&request.name, request.arguments.unwrap_or_default())?.into())
    }

    /// Accepted, because clients ask for it when they begin. The daemon sends no log messages to clients.
    async fn set_level(&self, _: SetLevelRequestParams, _: RequestContext<RoleServer>) -> Result<(), ErrorData> {
        Ok(())
    }
}
