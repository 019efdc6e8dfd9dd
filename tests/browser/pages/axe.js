// What axe-core, which the page must have, finds under some of its rules: a line for each element.
(only) =>
  axe.run({ exclude: ["[data-foreign]"] }, { runOnly: only, resultTypes: ["violations"] }).then(({ violations }) =>
    violations.flatMap(({ id, help, nodes }) =>
      nodes.map(({ html, any, all, none }) => {
        const reason = [...any, ...all, ...none].map((check) => check.message)[0] ?? "";
        return `${id} (${help}): ${html.slice(0, 160).replace(/\s+/g, " ")} ${reason}`;
      }),
    ),
  )
