// The rooms of the console, in the order of the navigation. A room is a module that exports `enter(element, path, query)`, which
// fills the element and gives the function that leaves it; it is fetched when it is first entered, or a moment after the
// first one was. `tab` is a shorter title for the navigation, where a phone has little room.

export const ROOMS = [
  { name: "home", title: "Overview", tab: "Home", load: () => import("./room_home.js") },
  { name: "log", title: "Log", load: () => import("./room_log.js") },
  { name: "folds", title: "Folds", load: () => import("./room_folds.js") },
  { name: "topics", title: "Topics", load: () => import("./room_topics.js") },
  { name: "groups", title: "Groups", load: () => import("./room_groups.js") },
  { name: "health", title: "Health", load: () => import("./room_health.js") },
  { name: "access", title: "Access", load: () => import("./room_access.js") },
  { name: "scene", title: "Log or queue?", tab: "Queue?", load: () => import("./scene.js") },
];
