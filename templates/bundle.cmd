@echo off
rem Qualifies a device of this machine with dmlc, without a network: see qualify.py.
rem qualify.cmd --device d3d12
setlocal
where py >nul 2>nul
if errorlevel 1 (
    python -I "%~dp0qualify.py" %*
) else (
    py -PYTHON_VERSION -I "%~dp0qualify.py" %*
)
set "STATUS=%errorlevel%"
if "%~1"=="" pause
exit /b %STATUS%
