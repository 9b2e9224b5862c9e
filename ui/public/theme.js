// Before the first paint, so that nobody in the dark is blinded for a moment.
const theme = localStorage.getItem('berth.theme');
if (theme === 'light' || theme === 'dark') document.documentElement.dataset.theme = theme;
