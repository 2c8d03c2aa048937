// The page around the viewer: language, theme, and the viewer itself.
const root = document.documentElement;
document.querySelector(".choices").hidden = false;
const languageButton = document.querySelector("#language");
function speakIn(lang) {
  root.lang = lang;
  languageButton.textContent = lang === "zh" ? "English" : "中文";
  languageButton.lang = lang === "zh" ? "en" : "zh";
}
if (navigator.language.startsWith("zh")) speakIn("zh");
languageButton.addEventListener("click", () => speakIn(root.lang === "zh" ? "en" : "zh"));
document.querySelector("#theme").addEventListener("click", () => {
  const dark = root.dataset.theme ? root.dataset.theme === "dark"
    : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
});
const data = JSON.parse(document.querySelector("#data").textContent);
root.classList.add("js");          // from here on the drawn timeline is for paper
mount(document.querySelector("#viewer"), data).catch((error) => {
  root.classList.remove("js");
  throw error;
});
