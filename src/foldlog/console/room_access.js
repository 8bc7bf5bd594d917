// The room of access: users, and what they may do.

import * as api from "./api.js";
import { change } from "./change.js";
import { card, empty, field, h, heads, put } from "./dom.js";
import { state } from "./store.js";
import { sentence } from "./words.js";

const part = encodeURIComponent;
const choose = (values, chosen) => h("select", {}, values.map((value) => h("option", { value, selected: value === chosen }, value.toLowerCase().replaceAll("_", " "))));
const input = (attributes) => h("input", { type: "text", class: "mono", autocomplete: "off", spellcheck: "false", ...attributes });
const OPERATIONS = ["READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE", "DESCRIBE_CONFIGS", "ALTER_CONFIGS", "IDEMPOTENT_WRITE", "CLUSTER_ACTION", "ALL"];

const words = (acl) => `${acl.permission === "ALLOW" ? "may" : "may not"} ${acl.operation.toLowerCase().replaceAll("_", " ")}`;
const resource = (acl) => (acl.resource === "CLUSTER" ? "the cluster" : `${acl.resource.toLowerCase().replaceAll("_", " ")} ${acl.name}${acl.pattern === "PREFIXED" ? "…" : ""}`);

function setPassword(user = "") {
  const name = input({ value: user, required: true, readonly: Boolean(user), autofocus: !user });
  const password = h("input", { type: "password", autocomplete: "new-password", required: true, autofocus: Boolean(user) });
  return change({
    title: user ? `New password for ${user}` : "New user", yes: user ? "Set the password" : "Create", text: user ? "The old one stops working at once, and sessions that were opened with it end." : "A user may do nothing until an ACL says so, unless the broker is set up otherwise.",
    fields: [field("Name", name), field("Password", password)],
    act: () => api.post(`users/${part(name.value.trim())}/password`, { password: password.value }), done: (answer) => (answer.is_new ? `${answer.user} was created.` : `${answer.user} has a new password.`),
  });
}

const deleteUser = (user) => change({ title: `Delete the user ${user}?`, yes: "Delete", isDanger: true, text: "They can no longer log in. Their ACLs stay.", fields: [], act: () => api.post(`users/${part(user)}/delete`, {}), done: () => `${user} was deleted.` });

function createAcl(users) {
  const principal = input({ value: users.length ? `User:${users[0].user}` : "User:", required: true, list: "principals", autofocus: true });
  const kind = choose(["TOPIC", "GROUP", "TRANSACTIONAL_ID", "CLUSTER"], "TOPIC");
  const name = input({ placeholder: "orders, or * for all", required: true });
  const pattern = choose(["LITERAL", "PREFIXED"], "LITERAL");
  const operation = choose(OPERATIONS, "READ");
  const permission = choose(["ALLOW", "DENY"], "ALLOW");
  const host = input({ value: "*" });
  kind.addEventListener("change", () => { if (kind.value === "CLUSTER") name.value = "kafka-cluster"; });
  const acl = () => ({ permission: permission.value, principal: principal.value.trim(), host: host.value.trim(), operation: operation.value, resource: kind.value, name: name.value.trim(), pattern: pattern.value });
  return change({
    title: "New ACL", yes: "Create", fields: [
      h("datalist", { id: "principals" }, users.map((one) => h("option", { value: `User:${one.user}` }))),
      field("Who", principal), h("div", { class: "pair" }, field("Permission", permission), field("Operation", operation)), h("div", { class: "pair" }, field("Of", kind), field("Name", name)), h("div", { class: "pair" }, field("The name is", pattern), field("From host", host))],
    plan: () => (name.value.trim() && principal.value.trim() ? acl() : null),
    show: (one) => h("p", { class: "notice" }, h("b", {}, one.principal), ` ${words(one)} ${resource(one)}${one.host === "*" ? "" : `, from ${one.host}`}.`),
    act: () => api.post("acls", acl()), done: (one) => `${one.principal} ${words(one)} ${resource(one)}.`,
  });
}

const deleteAcl = (acl) => change({ title: "Delete this ACL?", yes: "Delete", isDanger: true, text: `${acl.principal} ${words(acl)} ${resource(acl)}.`, fields: [], act: () => api.post("acls/delete", acl), done: () => "The ACL was deleted." });

export function enter(element) {
  const body = h("div", {});
  put(element, h("div", { class: "page" }, h("div", { class: "room-head" }, h("h1", {}, "Access"), h("p", { class: "quiet" }, "Who may do what with this log.")), body));
  const act = (text, does, isDanger) => !state.overview.read_only && h("button", { class: isDanger ? "button small danger" : "button small", type: "button", onclick: async () => { if (await does()) show(); } }, text);
  const show = async () => {
    try {
      const { users, acls, has_logins: hasLogins, has_acls: hasAcls } = await api.get("access");
      put(body,
        !hasLogins && h("p", { class: "notice" }, "Clients of this broker do not log in: users count once a listener asks for a login. ", h("code", {}, "foldlog serve --secure")),
        h("section", { class: "card" }, h("header", {}, h("h2", {}, "Users"), h("span", { class: "header-end" }, act("New user", () => setPassword()))),
          users.length ? h("div", { class: "scroll" }, h("table", {}, heads("User", ["Logs in with", "minor"], ""), h("tbody", {}, users.map((one) => h("tr", {}, h("th", { scope: "row" }, one.user), h("td", { class: "quiet minor" }, Object.keys(one.mechanisms).join(", ")), h("td", { class: "num" }, h("span", { class: "buttons end" }, act("Password", () => setPassword(one.user)), act("Delete", () => deleteUser(one.user), true)))))))) : h("p", { class: "quiet" }, "There are none.")),
        h("section", { class: "card" }, h("header", {}, h("h2", {}, "ACLs"), h("span", { class: "header-end" }, hasAcls && act("New ACL", () => createAcl(users)))),
          !hasAcls && h("p", { class: "notice" }, "ACLs are off: everybody who reaches this broker may do everything. ", h("code", {}, "authorizer.class.name=foldlog")),
          acls.length ? h("div", { class: "scroll" }, h("table", {}, heads("Who", "May", "What", ["From", "minor"], ""), h("tbody", {}, acls.map((acl) => h("tr", {}, h("th", { scope: "row" }, acl.principal), h("td", {}, h("span", { class: "chip", "data-state": acl.permission === "ALLOW" ? "good" : "bad" }, words(acl))), h("td", { class: "mono" }, resource(acl)), h("td", { class: "quiet minor" }, acl.host === "*" ? "anywhere" : acl.host), h("td", { class: "num" }, act("Delete", () => deleteAcl(acl), true))))))) : h("p", { class: "quiet" }, "There are none.")));
    } catch (error) { put(body, empty(error.status === 403 ? "This is not yours to see" : "This cannot be shown now", sentence(error.message))); }
  };
  show();
}
