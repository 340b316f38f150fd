"""The course as Streamlit pages: `main` is the entry, `screens` the pages, `components` what the browser runs."""
