// Addresses are relative, so that the page works under the path prefix of a proxy.
window.onload = () => {
  window.ui = SwaggerUIBundle({
    url: "openapi.json",
    dom_id: "#swagger-ui",
    deepLinking: true,
    validatorUrl: null, // would call a server of the project that made the page
    persistAuthorization: false,
  });
};
