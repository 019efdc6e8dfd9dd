// The API documentation: Swagger in this page's theme. Requests that a person tries carry the CSRF token.
import { currentTheme } from "./theme.js";

export function start() {
  const place = document.querySelector("[data-api-docs]");
  const follow = () => document.documentElement.classList.toggle("dark-mode", currentTheme() === "dark");
  follow();
  document.addEventListener("oc:theme", follow);
  window.SwaggerUIBundle({
    url: place.dataset.apiDocs,
    domNode: place,
    deepLinking: true,
    docExpansion: "list",
    plugins: [() => ({ wrapComponents: { InfoContainer: () => () => null } })], // its title block repeats the page's
    requestInterceptor: (request) => {
      request.headers["X-CSRFToken"] = place.dataset.csrf;
      return request;
    },
  });
}
